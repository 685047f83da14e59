package values

import (
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// A Frame is a source position, looked up and rendered once.
type Frame struct {
	pc     uintptr
	Source slog.Source
	Object string // {"function":"…","file":"…","line":12}
	Full   string // /path/to/dir/file.go:12
	Short  string // dir/file.go:12
	call   string // function /path/to/dir/file.go:12
}

// frames keeps frames by program counter. A program has only so many log calls,
// but whoever hands in an error with a made-up stack has not: the table is of
// fixed size, and a newer frame takes the place of an older one.
var frames [1 << 12]atomic.Pointer[Frame]

func frameSlot(pc uintptr) *atomic.Pointer[Frame] {
	return &frames[uint32(uint64(pc)*0x9e3779b97f4a7c15>>32)>>20]
}

// FrameOf returns the frame of a program counter as runtime.Callers reports it.
// It allocates the first time only.
func FrameOf(pc uintptr) *Frame {
	at := frameSlot(pc)
	if f := at.Load(); f != nil && f.pc == pc {
		return f
	}
	rf, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	f := NewFrame(slog.Source{Function: rf.Function, File: rf.File, Line: rf.Line})
	f.pc = pc
	at.Store(f)
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
	f.Full = src.File + ":" + strconv.Itoa(src.Line)
	f.Short = shortFile(src.File) + ":" + strconv.Itoa(src.Line)
	f.call = call(src.Function, src.File, src.Line)
	return f
}

// shortFile returns the last two parts of a path.
func shortFile(path string) string {
	i := strings.LastIndexByte(path, '/')
	if i > 0 {
		i = strings.LastIndexByte(path[:i], '/')
	}
	return path[i+1:]
}

func (f *Frame) Empty() bool { return f.Source == slog.Source{} }

// Text returns the position in the given format, which is not CallerObject.
func (f *Frame) Text(format callerForm) string {
	if format == CallerShort {
		return f.Short
	}
	return f.Full
}

// Source appends a *slog.Source among the attributes.
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

func call(function, file string, line int) string {
	return strings.TrimSpace(function + " " + file + ":" + strconv.Itoa(line))
}

// callText returns a frame as it stands in a stack.
func callText(f runtime.Frame) string {
	return call(f.Function, f.File, f.Line)
}
