//go:build lockcheck

#include "textflag.h"

// func goroutine() uint64
TEXT ·goroutine(SB), NOSPLIT, $0-8
	MOVD g, ret+0(FP) // the address of the goroutine's own data
	RET
