package picture_test

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"testing"

	"github.com/forebay-log/forebay/bench/picture"
)

// The texts of each picture are inside the picture and do not overlap, even in a wide font.
func TestTextsHaveRoom(t *testing.T) {
	const em = 0.62 // mean width of a character: 20 % more than in Arial
	files, err := filepath.Glob("../../docs/img/*.svg")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var svg struct {
			Texts []struct {
				X      float64 `xml:"x,attr"`
				Y      string  `xml:"y,attr"`
				Size   float64 `xml:"font-size,attr"`
				Anchor string  `xml:"text-anchor,attr"`
				Weight string  `xml:"font-weight,attr"`
				Text   string  `xml:",chardata"`
			} `xml:"text"`
		}
		if err := xml.Unmarshal(data, &svg); err != nil {
			t.Fatal(err)
		}
		type span struct {
			from, to float64
			text     string
		}
		lines := map[string][]span{}
		for _, x := range svg.Texts {
			if x.Size == 0 {
				x.Size = picture.FontSize
			}
			width := em * x.Size * float64(len([]rune(x.Text)))
			if x.Weight == "bold" {
				width *= 1.1
			}
			s := span{x.X, x.X + width, x.Text}
			switch x.Anchor {
			case "end":
				s.from, s.to = s.from-width, s.from
			case "middle":
				s.from, s.to = s.from-width/2, s.from+width/2
			}
			if s.from < 0 || s.to > picture.Width {
				t.Errorf("%s: %q from %.0f to %.0f of %d", file, s.text, s.from, s.to, picture.Width)
			}
			for _, other := range lines[x.Y] {
				if s.from < other.to && other.from < s.to {
					t.Errorf("%s: %q overlaps %q", file, s.text, other.text)
				}
			}
			lines[x.Y] = append(lines[x.Y], s)
		}
	}
}
