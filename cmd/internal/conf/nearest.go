package conf

// Nearest returns the name that is most similar to text. It compares edit distances. If the
// beginning of a name equals the beginning of text, the distance is reduced.
func Nearest(text string, names []string) string {
	best, least := "", 0
	for _, name := range names {
		d := 2 * distance(text, name)
		for i := 0; i < min(len(text), len(name)) && text[i] == name[i]; i++ {
			d-- // the first letters are rarely mistyped
		}
		if best == "" || d < least {
			best, least = name, d
		}
	}
	return best
}

// Alike reports whether one text may be a mistyped form of the other.
func Alike(a, b string) bool { return distance(a, b) <= max(len(a), len(b))/2 }

// distance returns the edit distance of a and b: the number of letters to change, insert, remove or
// swap with the next letter to turn one text into the other.
func distance(a, b string) int {
	const maxBytes = 64 // longer texts are cut
	if len(a) > maxBytes {
		a = a[:maxBytes]
	}
	before, above := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range above {
		above[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			change := 1
			if a[i] == b[j] {
				change = 0
			}
			row[j+1] = min(row[j]+1, above[j+1]+1, above[j]+change)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, above = above, row
	}
	return above[len(b)]
}
