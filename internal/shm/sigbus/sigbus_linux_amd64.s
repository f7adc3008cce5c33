#include "textflag.h"

#define maxGuarded 1024

#define sysMmap 9
#define readWrite 3
#define zeroPages 0x4032 // MAP_PRIVATE, MAP_FIXED, MAP_ANONYMOUS, MAP_NORESERVE

// func handler()
//
// The kernel calls it by C's convention: DI has the signal, SI the siginfo, DX the context. Only registers
// that it may change are changed, and on the way to the previous handler none that has an argument.
TEXT ·handler(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	MOVL 8(SI), AX // si_code
	CMPL AX, $0
	JLE  pass      // another process has sent it, so there is no address
	MOVQ 16(SI), R8 // si_addr
	LEAQ ·guarded(SB), R9
	MOVQ $maxGuarded, R10

next:
	MOVQ 0(R9), AX
	CMPQ AX, R8
	JHI  more // it begins above
	MOVQ 8(R9), CX
	CMPQ R8, CX
	JCC  more // it ends below
	CMPQ AX, 0(R9)
	JNE  more // it changes
	MOVQ $1, 16(R9)
	PUSHQ DI
	PUSHQ SI
	PUSHQ DX
	MOVQ AX, DI
	MOVQ CX, SI
	SUBQ AX, SI
	MOVL $readWrite, DX
	MOVL $zeroPages, R10
	MOVQ $-1, R8
	XORL R9, R9
	MOVL $sysMmap, AX
	SYSCALL
	POPQ DX
	POPQ SI
	POPQ DI
	CMPQ AX, $-4095
	JCC  pass // no memory
	RET

more:
	ADDQ $32, R9
	DECQ R10
	JNZ  next

pass:
	MOVQ ·previous(SB), AX
	JMP  AX

// func handlerAddress() uintptr
TEXT ·handlerAddress(SB), NOSPLIT, $0-8
	LEAQ ·handler(SB), AX
	MOVQ AX, ret+0(FP)
	RET
