// Package charsets adds the charsets of Japan, China and Korea to the program when it is imported.
//
//	import _ "github.com/forebay-log/forebay/cmd/forebay-all/internal/charsets"
package charsets

import (
	"bytes"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"

	"github.com/forebay-log/forebay/cmd/internal/charset"
)

func init() {
	add("shift_jis windows-932", japanese.ShiftJIS)
	add("euc-jp", japanese.EUCJP)
	add("euc-kr windows-949", korean.EUCKR)
	add("gbk windows-936", simplifiedchinese.GBK)
	add("gb18030", simplifiedchinese.GB18030)
	add("big5 windows-950", traditionalchinese.Big5)
}

func add(names string, e encoding.Encoding) {
	charset.Add(names, func(text []byte) []byte {
		decoded, err := e.NewDecoder().Bytes(text)
		if err != nil { // unreachable, because the decoders replace invalid bytes
			return bytes.ToValidUTF8(text, []byte("\ufffd"))
		}
		return decoded
	})
}
