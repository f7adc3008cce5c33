//go:build !race

#include "textflag.h"

// func publish64(p unsafe.Pointer, v uint64)
TEXT ·publish64(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ v+8(FP), BX
	MOVQ BX, (AX)
	RET

// func publish32(p unsafe.Pointer, v uint32)
TEXT ·publish32(SB), NOSPLIT, $0-12
	MOVQ p+0(FP), AX
	MOVL v+8(FP), BX
	MOVL BX, (AX)
	RET

// func flush()
TEXT ·flush(SB), NOSPLIT, $0-0
	SFENCE
	RET

// func drain()
TEXT ·drain(SB), NOSPLIT, $0-0
	SFENCE
	RET

// func fence()
TEXT ·fence(SB), NOSPLIT, $8-0
	LOCK
	ADDQ $0, 0(SP)
	RET

// func pause()
TEXT ·pause(SB), NOSPLIT, $0-0
	PAUSE
	RET

// func prefetch(p unsafe.Pointer)
TEXT ·prefetch(SB), NOSPLIT, $0-8
	MOVQ p+0(FP), AX
	PREFETCHT0 (AX)
	RET

// func copyWide(dst, src unsafe.Pointer, n uintptr)
TEXT ·copyWide(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX

head: // bytes until dst is aligned
	TESTQ $7, DI
	JZ    words
	TESTQ CX, CX
	JZ    done
	MOVB  (SI), AX
	MOVB  AX, (DI)
	INCQ  SI
	INCQ  DI
	DECQ  CX
	JMP   head

words:
	CMPQ CX, $64
	JB   eights
	MOVQ 0(SI), AX
	MOVQ 8(SI), BX
	MOVQ 16(SI), R8
	MOVQ 24(SI), R9
	MOVQ AX, 0(DI)
	MOVQ BX, 8(DI)
	MOVQ R8, 16(DI)
	MOVQ R9, 24(DI)
	MOVQ 32(SI), AX
	MOVQ 40(SI), BX
	MOVQ 48(SI), R8
	MOVQ 56(SI), R9
	MOVQ AX, 32(DI)
	MOVQ BX, 40(DI)
	MOVQ R8, 48(DI)
	MOVQ R9, 56(DI)
	ADDQ $64, SI
	ADDQ $64, DI
	SUBQ $64, CX
	JMP  words

eights:
	CMPQ CX, $8
	JB   tail
	MOVQ (SI), AX
	MOVQ AX, (DI)
	ADDQ $8, SI
	ADDQ $8, DI
	SUBQ $8, CX
	JMP  eights

tail:
	TESTQ CX, CX
	JZ    done
	MOVB  (SI), AX
	MOVB  AX, (DI)
	INCQ  SI
	INCQ  DI
	DECQ  CX
	JMP   tail

done:
	RET

// func streamLines(dst, src unsafe.Pointer, lines uintptr)
TEXT ·streamLines(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ lines+16(FP), CX

line:
	TESTQ  CX, CX
	JZ     out
	MOVOU  0(SI), X0
	MOVOU  16(SI), X1
	MOVOU  32(SI), X2
	MOVOU  48(SI), X3
	MOVNTO X0, 0(DI)
	MOVNTO X1, 16(DI)
	MOVNTO X2, 32(DI)
	MOVNTO X3, 48(DI)
	ADDQ   $64, SI
	ADDQ   $64, DI
	DECQ   CX
	JMP    line

out:
	SFENCE
	RET
