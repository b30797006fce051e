//! The board alone: what is set is taken, once and in order; garbage does no harm.

use core::sync::atomic::AtomicU64;
use lockfree::board::{Board, Page};

const CONDITIONS: usize = Page::CONDITIONS;

fn page() -> Page {
    Page::new(|| AtomicU64::new(0))
}

fn taken(board: &Page) -> Vec<usize> {
    let mut all = Vec::new();
    board.take(|condition| all.push(condition));
    all
}

#[test]
fn each_condition_is_told_of_once() {
    let board = page();
    assert_eq!(CONDITIONS, 28_672);
    for condition in 0..CONDITIONS {
        assert!(!board.set(condition), "nobody sleeps");
        assert!(!board.fall_asleep(), "{condition} holds");
        assert_eq!(taken(&board), [condition]);
        assert_eq!(taken(&board), []);
    }
}

#[test]
fn many_are_told_of_in_order() {
    let board = page();
    let some: Vec<usize> = (0..CONDITIONS).step_by(37).collect();
    for &condition in some.iter().rev() {
        assert!(!board.set(condition));
    }
    assert_eq!(taken(&board), some);
}

#[test]
fn who_sleeps_is_posted_to_until_it_says_that_it_is_awake() {
    let board = page();
    assert!(board.fall_asleep());
    assert!(board.set(1) && board.set(1) && board.set(CONDITIONS - 1));
    board.wake();
    assert!(!board.set(2));
    assert_eq!(taken(&board), [1, 2, CONDITIONS - 1]);
}

#[test]
fn conditions_that_are_not_there_never_hold() {
    let board = page();
    assert!(board.fall_asleep());
    for condition in [CONDITIONS, CONDITIONS + 1, usize::MAX] {
        assert!(!board.set(condition));
    }
    assert_eq!(taken(&board), []);
}

/// Whoever shares the page may store anything: the owner is told of conditions that there are.
#[test]
fn garbage_makes_conditions_seem_true_and_no_more() {
    let board: Board<AtomicU64, 3, 5> = Board::new(|| AtomicU64::new(u64::MAX));
    let mut told = Vec::new();
    board.take(|condition| told.push(condition));
    assert_eq!(told, (0..3 * 5 * 64).collect::<Vec<_>>());
    assert!(board.fall_asleep());
}
