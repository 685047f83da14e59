// Package plural formats counts with nouns.
package plural

import (
	"strconv"
	"strings"
)

// Of returns n and the matching form of noun: "1 record", "2 records", "3 batches".
func Of[N int | uint64](n N, noun string) string {
	return strconv.FormatUint(uint64(n), 10) + " " + Noun(uint64(n), noun)
}

// Records formats a number of records, such as "2 records".
func Records(n uint64) string { return Of(n, "record") }

// Noun returns the singular or plural form of noun for the number n.
func Noun(n uint64, noun string) string {
	switch {
	case n == 1:
		return noun
	case strings.HasSuffix(noun, "ch"):
		return noun + "es"
	}
	return noun + "s"
}
