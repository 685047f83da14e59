// Package picture contains the style of the pictures in docs/img: one palette for light and
// one for dark pages.
//
//	fmt.Fprint(w, picture.Open(400))
//	fmt.Fprint(w, `<text class="ink" x="10" y="20">…</text>`, picture.Close)
package picture

import "fmt"

// Width is the width of a picture in its own units. Pages show it 720 px wide, so a text of
// FontSize is 11.2 px high on a page.
const (
	Width    = 900
	FontSize = 14
)

// Close is the end of a picture.
const Close = "</svg>\n"

// style defines the classes of texts, areas and lines. Viewers use the second palette on dark
// pages.
const style = `<style>
.back{fill:#ffffff}.ink{fill:#222222}.note{fill:#555555}.shade{fill:#e4e4e4}.grid{stroke:#d5d5d5}.base{stroke:#222222}.edge{stroke:#ffffff}
.ours{fill:#1f6f8b}.theirs{fill:#b3402a}.other{fill:#9a6a0c}.ours.line{stroke:#1f6f8b}.theirs.line{stroke:#b3402a}.other.line{stroke:#9a6a0c}
.line{fill:none;stroke-width:1.6;stroke-linejoin:round}
@media (prefers-color-scheme:dark){
.back{fill:#0d1117}.ink{fill:#e6edf3}.note{fill:#9da7b3}.shade{fill:#2a313a}.grid{stroke:#30363d}.base{stroke:#e6edf3}.edge{stroke:#0d1117}
.ours{fill:#58b4d3}.theirs{fill:#f0826a}.other{fill:#d8a43a}.ours.line{stroke:#58b4d3}.theirs.line{stroke:#f0826a}.other.line{stroke:#d8a43a}
.line{fill:none}}
</style>`

// Open returns the beginning of a picture of Width and the given height, with its style and its
// background.
func Open(height int) string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="%d">`+"\n%s\n"+
		`<rect class="back" width="%d" height="%d"/>`+"\n", Width, height, FontSize, style, Width, height)
}
