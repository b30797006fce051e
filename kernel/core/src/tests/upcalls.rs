//! The upcall protocol, word by word.

use crate::index::EnvIndex;

use super::*;
use crate::upcall::{deliver_events, deliver_fault};
use abi::upcall::Cause;

const PAGE_FAULT: u8 = Cause::PageFault as u8;

fn fault(world: &mut World, index: usize, address: u64) -> bool {
    deliver_fault(
        &mut world.state,
        &mut world.machine,
        EnvIndex::new(index),
        PAGE_FAULT,
        6,
        address,
    )
}

fn slot(world: &World, index: usize, slot: usize, word: usize) -> u64 {
    world.saved(index, offset::SLOTS + 256 * slot + 8 * word)
}

#[test]
fn a_fault_saves_what_it_overwrites_and_enters() {
    let mut world = World::new();
    let context = world.machine.context(1);
    context.rip = 0x1234;
    context.rflags = 0x40746;
    context.rsp = 0x88;
    (context.rdi, context.rsi, context.rdx) = (1, 2, 3);
    (context.rcx, context.r11, context.rbx) = (4, 5, 6);
    assert!(fault(&mut world, 1, 0xdead));
    let words: Vec<u64> = (0..12).map(|word| slot(&world, 1, 0, word)).collect();
    assert_eq!(words, [0x1234, 0x40746, 0x88, 1, 2, 3, 4, 5, 14, 6, 0xdead, 0]);
    assert_eq!(world.saved(1, offset::DEPTH), 1);
    assert_eq!(world.saved(1, offset::MASK), 1);
    let context = *world.machine.context(1);
    assert_eq!(context.rip, FAULT);
    assert_eq!((context.rdi, context.rsi, context.rdx), (SAVE + 0x100, 14, 0xdead));
    assert_eq!(context.rflags, 0x246, "TF, DF, AC, NT cleared");
    assert_eq!((context.rcx, context.r11), (context.rip, context.rflags));
    assert_eq!((context.rbx, context.rsp), (6, 0x88));
}

#[test]
fn faults_nest_four_deep_and_then_it_stops() {
    let mut world = World::new();
    for depth in 1..=4 {
        assert!(fault(&mut world, 1, depth));
        assert_eq!(world.saved(1, offset::DEPTH), depth);
        assert_eq!(slot(&world, 1, depth as usize - 1, 10), depth);
    }
    assert!(!fault(&mut world, 1, 5));
    assert_eq!(world.state_of(1), EnvState::Stopped);
    assert_eq!(world.state.published.envs[1].cause, 14);
    assert_eq!(slot(&world, 1, 3, 10), 5, "its last frame");
    assert_eq!(world.pick(0), 0);
}

#[test]
fn without_handler_or_save_area_it_stops_and_its_holder_is_told() {
    for missing in ["entry", "save area"] {
        let mut world = World::new();
        let domain = world.domain();
        let other = world.spawn(domain);
        world.on(1, other);
        if missing == "entry" {
            world.state.envs.slots[EnvIndex::new(other)].entries.fault = 0;
        } else {
            world.state.envs.slots[EnvIndex::new(other)].save = Frame(0);
        }
        assert!(!fault(&mut world, other, 1));
        assert_eq!(world.state_of(other), EnvState::Stopped);
        assert_eq!(world.saved(1, offset::EVENTS), abi::upcall::EVENT_CHILD);
        world.state.envs.slots[EnvIndex::new(other)].save = Frame(0);
        let release = Call::EnvRelease { env: world.id(other) };
        assert_eq!(world.by(1, release), OK);
        assert_eq!(world.state_of(other), EnvState::Ready, "repaired, it runs on");
    }
}

#[test]
fn events_wait_while_masked() {
    let mut world = World::new();
    world.save(1, offset::PENDING, 1);
    mask(&mut world, 1);
    assert!(!deliver_events(&mut world.state, &mut world.machine, EnvIndex::new(1)));
    world.save(1, offset::MASK, 0);
    assert!(deliver_events(&mut world.state, &mut world.machine, EnvIndex::new(1)));
    assert_eq!(world.machine.context(1).rip, EVENT);
    assert_eq!(slot(&world, 1, 0, 8), Cause::Event as u64);
    assert_eq!(slot(&world, 1, 0, 11), 0, "the mask as it was");
}

#[test]
fn a_way_back_that_is_interrupted_runs_again() {
    let mut world = World::new();
    world.save(1, offset::RETURN_FIRST, 0x9000);
    world.save(1, offset::RETURN_LAST, 0x9100);
    for rip in [0x9000, 0x90ff] {
        for depth_word in [1, 2] {
            world.save(1, offset::RETURNING, SAVE + 0x200 + 1);
            world.save(1, offset::DEPTH, depth_word);
            world.save(1, offset::MASK, 0);
            world.save(1, offset::EVENTS, 1);
            world.save(1, offset::SLOTS + 256, 0x7777);
            world.machine.context(1).rip = rip;
            assert!(deliver_events(&mut world.state, &mut world.machine, EnvIndex::new(1)));
            assert_eq!(world.saved(1, offset::DEPTH), 2);
            assert_eq!(world.saved(1, offset::MASK), 1);
            assert_eq!(slot(&world, 1, 1, 0), 0x7777, "the slot is whole");
            assert_eq!(world.saved(1, offset::RETURNING), SAVE + 0x200 + 1);
            let context = world.machine.context(1);
            assert_eq!((context.rip, context.rdi), (EVENT, SAVE + 0x200));
        }
    }
    // Behind the sequence a delivery is an ordinary one.
    world.save(1, offset::MASK, 0);
    world.save(1, offset::DEPTH, 0);
    world.machine.context(1).rip = 0x9100;
    assert!(deliver_events(&mut world.state, &mut world.machine, EnvIndex::new(1)));
    assert_eq!(slot(&world, 1, 0, 0), 0x9100);
    assert_eq!(world.saved(1, offset::RETURNING), 0);
}

#[test]
fn no_word_of_the_save_area_leads_the_kernel_astray() {
    let mut world = World::new();
    world.save(1, offset::RETURN_FIRST, 0);
    world.save(1, offset::RETURN_LAST, u64::MAX);
    for returning in [1, SAVE + 1, SAVE + 0x101 + 8, SAVE + 0x501, u64::MAX] {
        world.save(1, offset::RETURNING, returning);
        world.save(1, offset::DEPTH, 0);
        world.save(1, offset::SLOTS + 80, 0);
        assert!(fault(&mut world, 1, 9));
        assert_eq!(slot(&world, 1, 0, 10), 9, "{returning:#x}");
    }
    world.save(1, offset::RETURNING, 0);
    world.save(1, offset::DEPTH, u64::MAX);
    assert!(!fault(&mut world, 1, 9));
}
