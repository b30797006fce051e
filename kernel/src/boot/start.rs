//! From power-on to Rust: the loaders' entries, and the way into long mode for all processors.
//!
//! # Safety
//! Assembly that runs before anything else. The first processor arrives in 32-bit protected mode
//! without paging and with the address of what the loader says in `ebx` (Xen, "x86/HVM direct boot
//! ABI"; Multiboot2 specification 2.0 §3.3, which has a magic number in `eax` as well); the others
//! come from the trampoline. The tables made here map the first 4 GiB at 0, at
//! the direct map's address and, its first GiB, at -2 GiB; `paging` replaces them.
#![allow(unsafe_code)]

use core::arch::global_asm;

global_asm!(
    r#"
    .set BASE, 0xffffffff80000000

    .section .note.pvh, "a", @note
    .balign 4
    .long 4, 8, 18                      # name size, descriptor size, PHYS32_ENTRY
    .asciz "Xen"
    .quad pvh_start - BASE

    # How a multiboot2 loader places the file (§3.1): a loader of ELF files would want the entry's
    # address in a segment as linked, which for this kernel is no physical one.
    .section .multiboot, "a"
    .balign 8
multiboot:
    .long 0xe85250d6, 0, multiboot_end - multiboot
    .long 0x100000000 - (0xe85250d6 + multiboot_end - multiboot)
    .word 2, 0                          # addresses: of this, of the file's part, of zeroes
    .long 24, multiboot - BASE, image_start - BASE, image_loaded - BASE, image_end - BASE
    .word 3, 0                          # the entry
    .long 12, multiboot_start - BASE, 0
    .word 6, 0                          # modules begin at pages
    .long 8
    .word 0, 0
    .long 8
multiboot_end:

    .section .text.boot, "ax"
    .code32
    .global multiboot_start
multiboot_start:
    mov esi, eax
    jmp 0f

    .global pvh_start
pvh_start:
    xor esi, esi
0:  cld
    mov ebp, ebx
    mov edi, offset boot_directories - BASE
    mov eax, 0x83                       # present, writable, large
    mov ecx, 2048
1:  mov [edi], eax
    mov dword ptr [edi + 4], 0
    add edi, 8
    add eax, 0x200000
    dec ecx
    jnz 1b
    mov eax, offset boot_directories - BASE + 3
    mov edi, offset boot_pointers - BASE
    mov ecx, 4
2:  mov [edi], eax
    add edi, 8
    add eax, 0x1000
    dec ecx
    jnz 2b
    mov dword ptr [boot_high - BASE + 510 * 8], offset boot_directories - BASE + 3
    mov dword ptr [boot_root - BASE], offset boot_pointers - BASE + 3
    mov dword ptr [boot_root - BASE + 256 * 8], offset boot_pointers - BASE + 3
    mov dword ptr [boot_root - BASE + 511 * 8], offset boot_high - BASE + 3

    # Others arrive here with ebp = 0.
    .global enter_long_mode
enter_long_mode:
    mov eax, cr4
    or eax, 0x20                        # PAE
    mov cr4, eax
    mov eax, offset boot_root - BASE
    mov cr3, eax
    mov ecx, 0xc0000080                 # EFER: LME, NXE
    rdmsr
    or eax, 0x900
    wrmsr
    mov eax, cr0
    or eax, 0x80010001                  # PG, WP, PE
    and eax, 0x9fffffff                 # caches on
    mov cr0, eax
    lgdt [boot_gdt_pointer - BASE]
    .byte 0xea                          # far jump
    .long start_64 - BASE
    .word 8

    .code64
start_64:
    movabs rax, offset start_high
    jmp rax
start_high:
    xor eax, eax
    mov ds, eax
    mov es, eax
    mov ss, eax
    mov fs, eax
    mov gs, eax
    movabs rax, offset boot_stack_end
    mov rsp, rax
    mov edi, ebp
    mov esi, esi                        # the upper half is not said to be kept
    test edi, edi
    jz 3f
    xor ebp, ebp
    call {start}
    ud2
3:  call {start_other}
    ud2

    .section .rodata
    .balign 8
boot_gdt:
    .quad 0, 0x00af9b000000ffff
boot_gdt_pointer:
    .word 15
    .quad boot_gdt - BASE

    .section .bss.boot, "aw", @nobits
    .balign 4096
    .global boot_root
boot_root: .skip 4096
boot_pointers: .skip 4096
boot_high: .skip 4096
boot_directories: .skip 4 * 4096
    .global boot_stack
boot_stack: .skip 32768
boot_stack_end:

    .text
    "#,
    start = sym crate::start,
    start_other = sym crate::start_other,
);
