//go:build lockcheck

#include "textflag.h"

// func goroutine() uint64
TEXT ·goroutine(SB), NOSPLIT, $0-8
	MOVQ (TLS), AX // the address of the goroutine's own data
	MOVQ AX, ret+0(FP)
	RET
