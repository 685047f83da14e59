package encode

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/internal/testkit/race"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func seedBytes(seed uint64, n int) []byte {
	rng := rand.New(rand.NewPCG(seed, 7))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// effort returns the number of cases of a random test: n, or a tenth of n with the race detector,
// multiplied by FOREBAY_TORTURE.
func effort(n int) int { return testkit.Scale(race.Fewer(n, 10), math.MaxInt) }

var escapePieces = []string{
	"", "a", "plain words ", "0123456789abcdef", "\"", "\\", "\n", "\t", "\r\n", "\x00", "\x1f", "\x7f", " ",
	"ж", "Привет", "é", "ß", "日本", "한국어", "ก็", "हि", "\u2028", "\u2029", "\u2027", "\u202a", "“”", "🌍", "\U0010ffff", "\U00010000",
	"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc2", "\xe0\x80\x80", "\xe0\x9f\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xed\xa0\x80", "\xed\xbf\xbf",
	"\xee\x80\x80", "\xef\xbf\xbd", "\xf0\x80\x80\x80", "\xf0\x8f\xbf\xbf", "\xf0\x90\x80", "\xf4\x90\x80\x80", "\xf5", "\xff", "\xe2\x80", "\xe2",
}

// literal replaces the escape \ufffd with the character, because encoding/json writes the character
// since Go 1.27.
func literal(text string) string {
	return strings.NewReplacer(`\\`, `\\`, `\ufffd`, "\ufffd").Replace(text)
}
