package values

import (
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// A Frame is a source position, with the texts in which it is written.
type Frame struct {
	pc     uintptr
	Source slog.Source
	Object string // {"function":"…","file":"…","line":12}
	Full   string // /path/to/dir/file.go:12
	Short  string // dir/file.go:12
	call   string // function /path/to/dir/file.go:12
	// The JSON of a stack consists of the field head for the first call, and the field more for
	// each further call.
	head string // ,"Source":"dir/file.go:12","StackTrace":"
	more string // \n and the call, escaped
}

// maxFramesKept is the maximum number of frames in the cache, of about 500 bytes each. A program
// has a limited number of call sites, but errors can have arbitrary program counters.
const maxFramesKept = 1 << 14

// frames caches frames by program counter, for source positions and stacks.
var frames atomic.Pointer[frameTable]

// framesMu is held while a frame is added. Lookups need no lock.
var framesMu sync.Mutex

// A frameTable is a hash table with linear probing. At most half of its slots are in use. Frames are
// added but never removed.
type frameTable struct {
	slots []atomic.Pointer[Frame] // the length is a power of two
	kept  int                     // number of frames; guarded by framesMu
}

func init() { frames.Store(newFrameTable(1 << 9)) }

func newFrameTable(slots int) *frameTable {
	return &frameTable{slots: make([]atomic.Pointer[Frame], slots)}
}

// find returns the frame of pc, or nil, and the slot for it.
func (t *frameTable) find(pc uintptr) (*Frame, *atomic.Pointer[Frame]) {
	mask := len(t.slots) - 1
	for i := int(uint64(pc) * 0x9e3779b97f4a7c15 >> 32); ; i++ {
		at := &t.slots[i&mask]
		if f := at.Load(); f == nil || f.pc == pc {
			return f, at
		}
	}
}

// keep adds f to the cache. If half of the slots are in use, a table of twice the size replaces the
// table. If the table already has maxFramesKept frames, the new table starts empty.
func (f *Frame) keep() {
	framesMu.Lock()
	defer framesMu.Unlock()
	t := frames.Load()
	if 2*t.kept == len(t.slots) {
		old := t
		if t = newFrameTable(min(2*len(old.slots), 2*maxFramesKept)); old.kept < maxFramesKept {
			for i := range old.slots {
				if k := old.slots[i].Load(); k != nil {
					t.add(k)
				}
			}
		}
		defer frames.Store(t)
	}
	t.add(f)
}

func (t *frameTable) add(f *Frame) {
	if present, at := t.find(f.pc); present == nil {
		at.Store(f)
		t.kept++
	}
}

// FrameOf returns the frame of pc, a program counter returned by runtime.Callers. It allocates only
// on the first call for a pc.
func FrameOf(pc uintptr) *Frame {
	if f, _ := frames.Load().find(pc); f != nil {
		return f
	}
	rf, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	f := NewFrame(slog.Source{Function: rf.Function, File: rf.File, Line: rf.Line})
	f.pc = pc
	f.head = string(appendHead(nil, rf.File, rf.Line))
	f.more = string(appendCall([]byte(`\n`), rf.Function, rf.File, rf.Line))
	f.keep()
	return f
}

func NewFrame(src slog.Source) *Frame {
	f := &Frame{Source: src}
	obj := []byte{'{'}
	if src.Function != "" {
		obj = jsontext.AppendString(jsontext.AppendKey(obj, "function"), src.Function)
	}
	if src.File != "" {
		obj = jsontext.AppendString(jsontext.AppendKey(obj, "file"), src.File)
	}
	if src.Line != 0 {
		obj = jsontext.AppendInt(jsontext.AppendKey(obj, "line"), int64(src.Line))
	}
	f.Object = string(append(obj, '}'))
	f.call = call(src.Function, src.File, src.Line)
	f.Full = f.call[len(f.call)-len(call("", src.File, src.Line)):] // a part of f.call, to save memory
	f.Short = shortFile(f.Full)
	return f
}

// shortFile returns the last two elements of a path.
func shortFile(path string) string {
	i := strings.LastIndexByte(path, '/')
	if i > 0 {
		i = strings.LastIndexByte(path[:i], '/')
	}
	return path[i+1:]
}

func (f *Frame) Empty() bool { return f.Source == slog.Source{} }

// Text returns the position in the given format, which must not be CallerObject.
func (f *Frame) Text(format callerForm) string {
	if format == CallerShort {
		return f.Short
	}
	return f.Full
}

// source appends a *slog.Source as an attribute.
func (w *Walker) source(dst []byte, key string, src *slog.Source) []byte {
	if src == nil || *src == (slog.Source{}) {
		return dst
	}
	if w.Style.Caller != CallerObject {
		return w.text(w.key(dst, key), NewFrame(*src).Text(w.Style.Caller))
	}
	attrs := make([]slog.Attr, 0, 3)
	if src.Function != "" {
		attrs = append(attrs, slog.String("function", src.Function))
	}
	if src.File != "" {
		attrs = append(attrs, slog.String("file", src.File))
	}
	if src.Line != 0 {
		attrs = append(attrs, slog.Int("line", src.Line))
	}
	return w.group(dst, key, attrs, false)
}

// call returns a frame as text, in the format of a line of a stack.
func call(function, file string, line int) string {
	at := file + ":" + strconv.Itoa(line)
	if function == "" {
		return at
	}
	return function + " " + at
}

// appendCall appends the same text as call, escaped for a JSON string.
func appendCall(dst []byte, function, file string, line int) []byte {
	if function != "" {
		dst = append(jsontext.AppendEscaped(dst, function), ' ')
	}
	dst = append(jsontext.AppendEscaped(dst, file), ':')
	return strconv.AppendInt(dst, int64(line), 10)
}

// appendHead appends the member Source, and the beginning of the member StackTrace.
func appendHead(dst []byte, file string, line int) []byte {
	dst = append(jsontext.AppendEscaped(append(dst, `,"Source":"`...), shortFile(file)), ':')
	dst = strconv.AppendInt(dst, int64(line), 10)
	return append(dst, `","StackTrace":"`...)
}
