#include "textflag.h"

#define maxGuarded 1024

#define sysMmap 222
#define readWrite 3
#define zeroPages 0x4032 // MAP_PRIVATE, MAP_FIXED, MAP_ANONYMOUS, MAP_NORESERVE

// func handler()
//
// The kernel calls it by C's convention: R0 has the signal, R1 the siginfo, R2 the context. Only registers
// that it may change are changed, and on the way to the previous handler none that has an argument.
TEXT ·handler(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	MOVW 8(R1), R3 // si_code
	CMPW $0, R3
	BLE  pass      // another process has sent it, so there is no address
	MOVD 16(R1), R3 // si_addr
	MOVD $·guarded(SB), R4
	MOVD $maxGuarded, R5

next:
	LDAR (R4), R6
	CMP  R3, R6
	BHI  more // it begins above
	ADD  $8, R4, R7
	LDAR (R7), R7
	CMP  R7, R3
	BHS  more // it ends below
	LDAR (R4), R9
	CMP  R6, R9
	BNE  more // it changes
	ADD  $16, R4, R9
	MOVD $1, R10
	STLR R10, (R9)
	MOVD R0, R10
	MOVD R1, R11
	MOVD R2, R12
	MOVD R6, R0
	SUB  R6, R7, R1
	MOVD $readWrite, R2
	MOVD $zeroPages, R3
	MOVD $-1, R4
	MOVD $0, R5
	MOVD $sysMmap, R8
	SVC
	CMN  $4095, R0
	BCS  noMemory
	RET

noMemory:
	MOVD R10, R0
	MOVD R11, R1
	MOVD R12, R2
	B    pass

more:
	ADD  $32, R4
	SUBS $1, R5
	BNE  next

pass:
	MOVD ·previous(SB), R3
	B    (R3)

// func handlerAddress() uintptr
TEXT ·handlerAddress(SB), NOSPLIT, $0-8
	MOVD $·handler(SB), R0
	MOVD R0, ret+0(FP)
	RET
