"""Commands for gdb that know Xok's environments.

xok-envs                 environments: state, processor, domain, program
xok-env N [FILE]         takes the symbols of environment N's program, and of its library
xok-break N FUNCTION     stops in FUNCTION, but in no other environment than N
xok-until PATH [FILE]    goes on until an environment begins the program PATH; $env is its number

What they know comes from the pages that the kernel publishes in every space; where these lie, and
what is where in a record, is written by `cargo xtask run --gdb` from the crates that define it.
"""

import os

import gdb

LAYOUT = {}
STATES = [
    "free", "new", "ready", "running", "sleeping", "donating", "held", "stopped", "dead",
]
RUNNING, DEAD = 3, 8
PAGE = 4096
# Symbol files that were added for an environment.
added = []


def read(address, length):
    return bytes(gdb.selected_inferior().read_memory(address, length))


def number(data, offset, length):
    return int.from_bytes(data[offset:offset + length], "little")


def table(name):
    """Address, stride and count of a published table."""
    try:
        magic = number(read(LAYOUT["published"], 8), 0, 8)
    except gdb.MemoryError:
        magic = 0
    if magic != LAYOUT["magic"]:
        raise gdb.GdbError("the kernel has published nothing yet: continue first")
    place = LAYOUT["published"] + LAYOUT["tables"] + LAYOUT["table_bytes"] * LAYOUT[name]
    info = read(place, LAYOUT["table_bytes"])
    return number(info, 0, 8), number(info, 8, 4), number(info, 12, 4)


class Environment:
    """The published record of an environment, as it stands."""

    def __init__(self, index, record):
        field = lambda name, length=4: number(record, LAYOUT["env"][name], length)
        self.index = index
        self.id = field("id")
        self.state = field("state")
        self.domain = field("domain", 8)
        self.cpu = field("cpu")

    def program(self):
        """The path of the Linux program that it runs, or nothing."""
        address, stride, _ = table("application_pages")
        page = read(address + self.index * stride, PAGE)
        if number(page, 0, 8) != LAYOUT["process"]["magic"]:
            return ""
        length = number(page, LAYOUT["process"]["path_len"], 4)
        start = LAYOUT["process"]["path"]
        return page[start:start + length].decode(errors="replace")

    def runs_here(self):
        """Does the selected processor run it?"""
        here = gdb.selected_thread().num - 1
        if self.state != RUNNING or self.cpu != here:
            return False
        root = domain_root(self.domain)
        register = gdb.newest_frame().read_register("cr3").format_string(format="x")
        return root is not None and int(register, 16) & ~(PAGE - 1) == root


def domain_root(wanted):
    """The address of a domain's root table."""
    address, stride, count = table("domains")
    data = read(address, stride * count)
    for at in range(0, len(data), stride):
        if number(data, at + LAYOUT["domain"]["id"], 8) == wanted:
            return number(data, at + LAYOUT["domain"]["root"], 4) * PAGE
    return None


def environments():
    address, stride, count = table("envs")
    data = read(address, stride * count)
    for index in range(count):
        found = Environment(index, data[index * stride:(index + 1) * stride])
        if found.id != 0:
            yield found


def environment(wanted):
    for found in environments():
        if found.id == wanted:
            return found
    raise gdb.GdbError("no environment %d: xok-envs lists them" % wanted)


def running():
    for found in environments():
        if found.state == RUNNING and found.runs_here():
            return found
    return None


def host_file(path, command):
    """The file of the host that the guest has at this path; else `command` is told with it."""
    for guest, host in LAYOUT["files"]:
        if path == guest:
            return host
        if path.startswith(guest + "/"):
            return host + path[len(guest):]
    raise gdb.GdbError("%s: which file of the host is it? %s FILE" % (path, command))


def add_symbols(path, base=0):
    if not os.path.isfile(path):
        raise gdb.GdbError("%s: no such file" % path)
    offset = " -o %#x" % base if base else ""
    gdb.execute("add-symbol-file %s%s" % (path, offset), to_string=True)
    added.append(path)


def drop_symbols():
    for path in added:
        for objfile in gdb.objfiles():
            if objfile.filename and os.path.realpath(objfile.filename) == os.path.realpath(path):
                gdb.execute("remove-symbol-file %s" % objfile.filename, to_string=True)
                break
    del added[:]


def relocated(path):
    """Where a position-independent program is loaded, else 0 (ELF header, e_type)."""
    with open(path, "rb") as file:
        return LAYOUT["base"] if number(file.read(18), 16, 2) == 3 else 0


def take_symbols(path, library):
    drop_symbols()
    add_symbols(path, relocated(path))
    if library:
        add_symbols(LAYOUT["exos"])


def require_function(function):
    """Complains unless an environment's own program or library has the function."""
    try:
        _, places = gdb.decode_line(function)
    except gdb.error:
        places = None
    if not any(place.pc < LAYOUT["kernel"] for place in places or []):
        raise gdb.GdbError("no function %s in %s" % (function, " or ".join(added) or "no program"))


class InEnvironment(gdb.Breakpoint):
    """Stops only where one environment runs."""

    def __init__(self, function, env):
        super().__init__(function)
        self.env = env

    def stop(self):
        if gdb.newest_frame().pc() >= LAYOUT["kernel"]:
            # A function of the kernel's with the same name.
            return False
        try:
            return environment(self.env).runs_here()
        except gdb.GdbError:
            return False


class AtBeginning(gdb.Breakpoint):
    """Stops where a program begins, whichever environment executes it."""

    def __init__(self, address, path):
        super().__init__("*%#x" % address, internal=True)
        self.silent = True
        self.path = path

    def stop(self):
        found = running()
        return found is not None and found.program() == self.path


def words(text, least, most, usage):
    given = gdb.string_to_argv(text)
    if not least <= len(given) <= most:
        raise gdb.GdbError("usage: " + usage)
    return given


def env_number(text):
    try:
        return int(gdb.parse_and_eval(text))
    except gdb.error:
        raise gdb.GdbError("%s: not the number of an environment" % text)


class Envs(gdb.Command):
    """xok-envs: environments, with state, processor, domain and program."""

    def __init__(self):
        super().__init__("xok-envs", gdb.COMMAND_STATUS)

    def invoke(self, text, from_tty):
        print("%8s %-9s %4s %8s %s" % ("env", "state", "cpu", "domain", "program"))
        for found in environments():
            state = STATES[found.state] if found.state < len(STATES) else str(found.state)
            program = "" if found.state == DEAD else found.program()
            print("%8d %-9s %4d %8d %s" % (found.id, state, found.cpu, found.domain, program))


class Env(gdb.Command):
    """xok-env N [FILE]: takes the symbols of environment N's program; FILE, a path of the guest or
of the host, says which program a native environment runs."""

    def __init__(self):
        super().__init__("xok-env", gdb.COMMAND_FILES)

    def invoke(self, text, from_tty):
        given = words(text, 1, 2, "xok-env N [FILE]")
        found = environment(env_number(given[0]))
        program = found.program()
        again = "xok-env %d" % found.id
        if len(given) == 2:
            path = given[1] if os.path.isfile(given[1]) else host_file(given[1], again)
        elif program:
            path = host_file(program, again)
        else:
            raise gdb.GdbError("environment %d runs no Linux program: %s FILE" % (found.id, again))
        take_symbols(path, bool(program))
        gdb.set_convenience_variable("env", found.id)
        print("environment %d: symbols of %s" % (found.id, ", ".join(added)))


class Break(gdb.Command):
    """xok-break N FUNCTION: stops in FUNCTION when environment N calls it, and no other one."""

    def __init__(self):
        super().__init__("xok-break", gdb.COMMAND_BREAKPOINTS)

    def invoke(self, text, from_tty):
        given = words(text, 2, 2, "xok-break N FUNCTION")
        found = environment(env_number(given[0]))
        require_function(given[1])
        InEnvironment(given[1], found.id)


class Until(gdb.Command):
    """xok-until PATH [FILE]: goes on until an environment begins the program PATH of the guest, and
takes its symbols; $env is the environment's number then. FILE is the program's file on the host,
where the image did not bring it there: a copy that was made in the guest."""

    def __init__(self):
        super().__init__("xok-until", gdb.COMMAND_RUNNING)

    def invoke(self, text, from_tty):
        given = words(text, 1, 2, "xok-until PATH [FILE]")
        path = given[0]
        host = given[1] if len(given) == 2 else host_file(path, "xok-until %s" % path)
        if not os.path.isfile(host):
            raise gdb.GdbError("%s: no such file" % host)
        with open(host, "rb") as file:
            entry = number(file.read(32), 24, 8) + relocated(host)
        beginning = AtBeginning(entry, path)
        try:
            gdb.execute("continue", to_string=True)
        finally:
            beginning.delete()
        found = running()
        if found is None or found.program() != path:
            raise gdb.GdbError("stopped before %s began" % path)
        gdb.execute("xok-env %d '%s'" % (found.id, host))


def configure(layout):
    LAYOUT.update(layout)
    for command in (Envs, Env, Break, Until):
        command()
