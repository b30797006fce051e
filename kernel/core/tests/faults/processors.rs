//! Faults of the processor half: what each breaks, the file, the source, what it becomes.

/// As the list beside it.
pub const FAULTS: &[(&str, &str, &str, &str)] = &[
    (
        "a sleeper does not look at its bits",
        "sleep.rs",
        "if let Some(why) = reason(state, machine, caller) {\n        return Some(Ok(why));\n    }",
        "",
    ),
    (
        "a post wakes nobody",
        "sleep.rs",
        "    notify(state, machine, index, bits, woken::POSTED);\n",
        "",
    ),
    (
        "a post wakes for any bit",
        "sleep.rs",
        "        if wakes != 0 {",
        "        if wakes != 0 || set != 0 {",
    ),
    (
        "a deadline is forgotten",
        "sleep.rs",
        "[env.deadline, env.timer, env.edge]",
        "[0, env.timer, env.edge]",
    ),
    (
        "a masked environment that runs is not interrupted",
        "sleep.rs",
        "} else if env.state == EnvState::Running {",
        "} else if env.state == EnvState::Running\n\
         \x20       && !crate::upcall::masked(state, machine, index)\n    {",
    ),
    (
        "a delivery does not mask",
        "upcall.rs",
        "    machine.word_set(physical + offset::MASK as u64, 1);\n",
        "",
    ),
    (
        "a delivery keeps the trap flag",
        "upcall.rs",
        "clean(context.rflags) & !CLEARED",
        "clean(context.rflags)",
    ),
    (
        "an interrupted way back is not found",
        "upcall.rs",
        "rip >= word(offset::RETURN_FIRST) && rip < word(offset::RETURN_LAST)",
        "rip > word(offset::RETURN_FIRST) && rip < word(offset::RETURN_LAST)",
    ),
    (
        "any return word is believed",
        "upcall.rs",
        "(distance.is_multiple_of(SLOT_BYTES) && slot < UPCALL_DEPTH as u64).then_some(slot)",
        "(slot < UPCALL_DEPTH as u64).then_some(slot)",
    ),
    (
        "a transfer enters who masks",
        "transfer.rs",
        "(env.pending == Pending::Accept || !upcall::masked(state, machine, target))",
        "true",
    ),
    (
        "a transfer does not say who calls",
        "context.rs",
        "(u64::from(sender.0), FIXED_FLAGS)",
        "(message.rcx, FIXED_FLAGS)",
    ),
    (
        "a callee keeps accepting",
        "transfer.rs",
        "        machine.word_set(physical + offset::ACCEPTING as u64, 0);\n",
        "        let _ = physical;\n",
    ),
    (
        "a reply takes the stack pointer along",
        "context.rs",
        "(0, u64::from(sender.0), self.rflags);\n",
        "(0, u64::from(sender.0), self.rflags);\n        self.rsp = message.rsp;\n",
    ),
    (
        "the short way looks at no events",
        "handover.rs",
        "target == caller || called_away(machine, env)",
        "target == caller",
    ),
    ("the short way passes deadlines", "handover.rs", "now < state.sched.alarms.soonest()", "true"),
    (
        "the short way passes who was woken",
        "handover.rs",
        "    this.front == 0\n        && state",
        "    state",
    ),
    (
        "the short way forgets debts",
        "handover.rs",
        "let owes = own.debt_ns > 0;",
        "let owes = false;",
    ),
    (
        "a dead server leaves its donors waiting",
        "death.rs",
        "    refuse_donors(state, machine, index);\n    orphan",
        "    orphan",
    ),
    (
        "a stranger forgets the dead",
        "death.rs",
        "Ok(holder) if env::domain(state, holder) == env::domain(state, caller) => {",
        "Ok(holder) if holder != usize::MAX => {",
    ),
    (
        "what was never released outlives its maker",
        "death.rs",
        "                    die(state, machine, child, 0, EnvId(id));\n",
        "",
    ),
    (
        "a death keeps its charge",
        "death.rs",
        "    account::uncharge(state, account, Resource::Envs, 1);\n",
        "    let _ = account;\n",
    ),
    (
        "slices are not passed on",
        "slice.rs",
        "        if shares(state, other) {\n            sharers += 1;",
        "        if other == 0 {\n            sharers += 1;",
    ),
    (
        "the end of a slice never comes to who masks",
        "sched.rs",
        "        this.extended = true;\n",
        "",
    ),
    (
        "what is borrowed is not paid back",
        "sched.rs",
        "        *debt = debt.saturating_add(ran as u32);\n",
        "        let _ = debt;\n",
    ),
    (
        "anybody's slice is borrowed",
        "sched.rs",
        "this.lender != 0 || !lends(state, current) {",
        "this.front == 0 {",
    ),
    (
        "excess is not paid",
        "round.rs",
        "    if state.published.envs[index].excess > 0 {",
        "    if state.published.envs[index].excess > 1000 {",
    ),
    (
        "donated slices run nobody",
        "round.rs",
        "            EnvState::Donating => {",
        "            EnvState::Donating if index == 0 => {",
    ),
    (
        "a term holds by its last atom",
        "predicate.rs",
        "        if term {\n            let atom",
        "        if true {\n            let atom",
    ),
    (
        "a crooked address is read",
        "predicate.rs",
        "    if !address.is_multiple_of(align) {",
        "    if align == 0 {",
    ),
    (
        "a region's words are not watched",
        "operate.rs",
        "    if watched {\n",
        "    if false && watched {\n",
    ),
    (
        "a word is written before the copy faults",
        "operate.rs",
        "        copy(state, machine, (plan.index, at, user, plan.len), into)?;\n",
        "        let late = copy(state, machine, (plan.index, at, user, plan.len), into);\n\
         \x20       if let (Err(_), Some(pair)) = (late, plan.writes.first()) {\n\
         \x20           let (offset, value) = offset_and_value(pair);\n\
         \x20           machine.word_set(physical(state, plan.index, offset), value);\n\
         \x20       }\n        late?;\n",
    ),
    (
        "a step moves the word before the copy faults",
        "step.rs",
        "    }\n    let (len, offset) = (u64::from(plan.step.len), u64::from(plan.step.offset));\n",
        "    }\n    let (len, offset) = (u64::from(plan.step.len), u64::from(plan.step.offset));\n\
         \x20   machine.word_set(plan.moves, plan.from.wrapping_add(len));\n",
    ),
    (
        "a step needs no attachment",
        "step.rs",
        "    if !attached || !role_writes(role) {",
        "    if !role_writes(role) {",
    ),
    (
        "a step may be of words behind the region",
        "step.rs",
        "    let words_end = moves.max(beside) + 8;\n",
        "    let words_end = moves + 8;\n",
    ),
    (
        "a sleeper's step is done into a page that is not written to yet",
        "step.rs",
        "    const NEEDED: u64 = PRESENT | USER | WRITABLE | ACCESSED | DIRTY;\n",
        "    const NEEDED: u64 = PRESENT | USER | WRITABLE | ACCESSED | DIRTY & 0;\n",
    ),
    (
        "a domain is known as attached when it no longer is",
        "region.rs",
        "    state.regions.slots[usize::from(region)].known[usize::from(role)] = 0;\n",
        "    let _ = (region, role);\n",
    ),
    (
        "a compare that fails writes all the same",
        "operate.rs",
        "        if found != expected {",
        "        if found != expected && plan.writes.is_empty() {",
    ),
    (
        "a reader writes",
        "operate.rs",
        "    if changes && !role_writes(role) {",
        "    if changes && role > 3 {",
    ),
    (
        "a stranger operates",
        "operate.rs",
        "    if !attached_again(state, env::domain(state, caller).index(), index, role) {",
        "    if index == 0 {",
    ),
    (
        "a write leaves the one that waits asleep",
        "operate.rs",
        "        sleep::try_predicate(state, machine, last, true);\n",
        "        let _ = last;\n",
    ),
    (
        "of several that wait none is looked at",
        "operate.rs",
        "    } else if waiters > 0 {\n        touched(state, index);\n",
        "    } else if waiters > 0 {\n",
    ),
    (
        "who waits does not notice that its peers go",
        "operate.rs",
        "    alone || machine",
        "    machine",
    ),
    (
        "who waits for a region is deaf to posts from before",
        "sleep.rs",
        "    if let Some(why) = told(state, machine, index) {\n        return Err(",
        "    if let Some(why) = None {\n        return Err(",
    ),
    (
        "who is woken goes on being waited for",
        "operate.rs",
        "        state.regions.slots[region].waiters -= 1;\n",
        "        state.regions.slots[region].waiters -= 0;\n",
    ),
    ("anybody is controlled", "env.rs", "    if index != caller {\n", "    if index == 0 {\n"),
    (
        "the kernel's half is an entry point",
        "create.rs",
        "set(bit) && !is_user(entry)",
        "set(bit) && entry == 1",
    ),
    (
        "a non-canonical base is taken",
        "create.rs",
        "set(bit) && !canonical(base)",
        "set(bit) && base == 1 && !canonical(base)",
    ),
];
