//go:build !race

#include "textflag.h"

// func publish64(p unsafe.Pointer, v uint64)
TEXT ·publish64(SB), NOSPLIT, $0-16
	MOVD p+0(FP), R0
	MOVD v+8(FP), R1
	STLR R1, (R0)
	RET

// func publish32(p unsafe.Pointer, v uint32)
TEXT ·publish32(SB), NOSPLIT, $0-12
	MOVD  p+0(FP), R0
	MOVWU v+8(FP), R1
	STLRW R1, (R0)
	RET

// func flush()
TEXT ·flush(SB), NOSPLIT, $0-0
	DMB $0xE // ST
	RET

// func drain()
TEXT ·drain(SB), NOSPLIT, $0-0
	DSB $0xE // ST
	RET

// func fence()
TEXT ·fence(SB), NOSPLIT, $0-0
	DMB $0xF // SY
	RET

// func pause()
TEXT ·pause(SB), NOSPLIT, $0-0
	YIELD
	RET

// func prefetch(p unsafe.Pointer)
TEXT ·prefetch(SB), NOSPLIT, $0-8
	MOVD p+0(FP), R0
	PRFM (R0), PLDL1KEEP
	RET

// func copyWide(dst, src unsafe.Pointer, n uintptr)
TEXT ·copyWide(SB), NOSPLIT, $0-24
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD n+16(FP), R2

head: // bytes until dst is aligned
	TST $7, R0
	BEQ words
	CBZ R2, done
	MOVBU.P 1(R1), R3
	MOVB.P  R3, 1(R0)
	SUB $1, R2
	B   head

words:
	CMP $8, R2
	BLO tail
	MOVD.P 8(R1), R3
	MOVD.P R3, 8(R0)
	SUB $8, R2
	B   words

tail:
	CBZ R2, done
	MOVBU.P 1(R1), R3
	MOVB.P  R3, 1(R0)
	SUB $1, R2
	B   tail

done:
	RET
