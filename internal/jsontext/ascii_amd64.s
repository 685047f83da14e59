#include "textflag.h"

DATA flip<>+0(SB)/8, $0x0202020202020202
GLOBL flip<>(SB), RODATA|NOPTR, $8

DATA limit<>+0(SB)/8, $0x2121212121212121
GLOBL limit<>(SB), RODATA|NOPTR, $8

// backslashes with bit 1 flipped
DATA backslash<>+0(SB)/8, $0x5e5e5e5e5e5e5e5e
GLOBL backslash<>(SB), RODATA|NOPTR, $8

// func copyASCIIVectors(dst, src *byte, n int) int
TEXT ·copyASCIIVectors(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	VPBROADCASTQ flip<>(SB), Y12
	VPBROADCASTQ limit<>(SB), Y13
	VPBROADCASTQ backslash<>(SB), Y14
	XORL AX, AX                 // number of bytes that are copied
	LEAQ -128(CX), R8           // the last start of a block of 128 bytes
	LEAQ -32(CX), R9            // the last start of a block of 32 bytes
	JMP  test128

	// A byte must not be copied unchecked if, after bit 1 is flipped, it is a flipped backslash or
	// less than 0x21. Non-ASCII bytes are negative as signed numbers, so the comparison finds them,
	// too; see unsafeBits. The minimum of four vectors needs only one comparison.
block128:
	VMOVDQU (SI)(AX*1), Y0
	VMOVDQU 32(SI)(AX*1), Y1
	VMOVDQU 64(SI)(AX*1), Y2
	VMOVDQU 96(SI)(AX*1), Y3
	VMOVDQU Y0, (DI)(AX*1)
	VMOVDQU Y1, 32(DI)(AX*1)
	VMOVDQU Y2, 64(DI)(AX*1)
	VMOVDQU Y3, 96(DI)(AX*1)
	VPXOR   Y12, Y0, Y0
	VPXOR   Y12, Y1, Y1
	VPXOR   Y12, Y2, Y2
	VPXOR   Y12, Y3, Y3
	VPCMPEQB Y14, Y0, Y4
	VPCMPEQB Y14, Y1, Y5
	VPCMPEQB Y14, Y2, Y6
	VPCMPEQB Y14, Y3, Y7
	VPMINSB Y0, Y1, Y0
	VPMINSB Y2, Y3, Y2
	VPMINSB Y0, Y2, Y0
	VPCMPGTB Y0, Y13, Y0
	VPOR    Y4, Y5, Y4
	VPOR    Y6, Y7, Y6
	VPOR    Y4, Y6, Y4
	VPOR    Y4, Y0, Y0
	VPMOVMSKB Y0, BX
	TESTL   BX, BX
	JNZ     block32             // block32 finds the byte
	ADDQ    $128, AX

test128:
	CMPQ AX, R8
	JLE  block128

test32:
	CMPQ AX, R9
	JLE  block32
	CMPQ AX, CX
	JEQ  done
	MOVQ R9, AX                 // the last 32 bytes; those before AX are copied again

block32:
	VMOVDQU (SI)(AX*1), Y0
	VMOVDQU Y0, (DI)(AX*1)
	VPXOR   Y12, Y0, Y0
	VPCMPEQB Y14, Y0, Y4
	VPCMPGTB Y0, Y13, Y0
	VPOR    Y4, Y0, Y0
	VPMOVMSKB Y0, BX
	TESTL   BX, BX
	JNZ     found
	ADDQ    $32, AX
	JMP     test32

found:
	BSFL BX, BX
	ADDQ BX, AX

done:
	VZEROUPPER
	MOVQ AX, ret+24(FP)
	RET
