//! Prints what share of a program's `syscall` instructions has a safe form: `FILE…`.

use callsites::{Form, Object, sites};

fn main() {
    for path in std::env::args().skip(1) {
        let share = std::fs::read(&path).ok().and_then(|file| {
            let object = Object::parse(&file)?;
            let mut counts = [0; 3];
            for page in object.pages() {
                let found = sites(&object, page);
                counts[2] += found.sites.len() + found.kept.len();
                for site in found.sites {
                    counts[usize::from(matches!(site.form, Form::Padded { .. }))] += 1;
                }
            }
            Some(counts)
        });
        match share {
            Some([displaced, padded, all]) => {
                let both = displaced + padded;
                println!(
                    "{path}: {both} of {all} ({displaced} before the call, {padded} in padding)"
                );
            }
            None => println!("{path}: not an ELF file"),
        }
    }
}
