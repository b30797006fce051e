//! Tries inputs for downloaded code: as many as `XOK_INPUTS` says, from `XOK_SEED`.

fn main() {
    fuzz::run();
}
