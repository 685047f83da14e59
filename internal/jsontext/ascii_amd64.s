#include "textflag.h"

DATA flip<>+0(SB)/8, $0x0202020202020202
DATA flip<>+8(SB)/8, $0x0202020202020202
GLOBL flip<>(SB), RODATA|NOPTR, $16

DATA limit<>+0(SB)/8, $0x2121212121212121
DATA limit<>+8(SB)/8, $0x2121212121212121
GLOBL limit<>(SB), RODATA|NOPTR, $16

DATA backslash<>+0(SB)/8, $0x5c5c5c5c5c5c5c5c
DATA backslash<>+8(SB)/8, $0x5c5c5c5c5c5c5c5c
GLOBL backslash<>(SB), RODATA|NOPTR, $16

// UNSAFE sets the bytes of mask where the byte of data cannot be copied unchecked. As signed
// numbers, non-ASCII bytes are negative, so one comparison finds them, too; see unsafeBits.
// It overwrites data.
#define UNSAFE(data, mask, tmp) \
	MOVO    X13, mask; \
	MOVO    data, tmp; \
	PXOR    X12, data; \
	PCMPGTB data, mask; \
	PCMPEQB X14, tmp; \
	POR     tmp, mask

// func copyASCII(dst, src *byte, n int) int
TEXT ·copyASCII(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	MOVOU flip<>(SB), X12
	MOVOU limit<>(SB), X13
	MOVOU backslash<>(SB), X14
	XORL AX, AX                 // number of bytes that are copied
	LEAQ -64(CX), R8            // the last start of a block of 64 bytes
	LEAQ -16(CX), R9            // the last start of a block of 16 bytes
	JMP  test64

block64:
	MOVOU (SI)(AX*1), X0
	MOVOU 16(SI)(AX*1), X1
	MOVOU 32(SI)(AX*1), X2
	MOVOU 48(SI)(AX*1), X3
	MOVOU X0, (DI)(AX*1)
	MOVOU X1, 16(DI)(AX*1)
	MOVOU X2, 32(DI)(AX*1)
	MOVOU X3, 48(DI)(AX*1)
	UNSAFE(X0, X4, X8)
	UNSAFE(X1, X5, X9)
	UNSAFE(X2, X6, X10)
	UNSAFE(X3, X7, X11)
	POR   X5, X4
	POR   X7, X6
	POR   X6, X4
	PMOVMSKB X4, BX
	TESTL BX, BX
	JNZ   block16               // block16 finds the byte
	ADDQ  $64, AX

test64:
	CMPQ AX, R8
	JLE  block64

test16:
	CMPQ AX, R9
	JLE  block16
	CMPQ AX, CX
	JEQ  done
	MOVQ R9, AX                 // the last 16 bytes; those before AX are copied again

block16:
	MOVOU (SI)(AX*1), X0
	MOVOU X0, (DI)(AX*1)
	UNSAFE(X0, X4, X8)
	PMOVMSKB X4, BX
	TESTL BX, BX
	JNZ   found
	ADDQ  $16, AX
	JMP   test16

found:
	BSFL BX, BX
	ADDQ BX, AX

done:
	MOVQ AX, ret+24(FP)
	RET
