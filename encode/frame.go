package encode

import (
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
)

// A frame is a source position, looked up and rendered once.
type frame struct {
	pc     uintptr
	source slog.Source
	object string // {"function":"…","file":"…","line":12}
	full   string // /path/to/dir/file.go:12
	short  string // dir/file.go:12
	call   string // function /path/to/dir/file.go:12
}

// frames keeps frames by program counter. A program has only so many log calls,
// but whoever hands in an error with a made-up stack has not: the table is of
// fixed size, and a newer frame takes the place of an older one.
var frames [1 << 12]atomic.Pointer[frame]

func frameSlot(pc uintptr) *atomic.Pointer[frame] {
	return &frames[uint32(uint64(pc)*0x9e3779b97f4a7c15>>32)>>20]
}

// frameOf returns the frame of a program counter as runtime.Callers reports it.
// It allocates the first time only.
func frameOf(pc uintptr) *frame {
	at := frameSlot(pc)
	if f := at.Load(); f != nil && f.pc == pc {
		return f
	}
	rf, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	f := newFrame(slog.Source{Function: rf.Function, File: rf.File, Line: rf.Line})
	f.pc = pc
	at.Store(f)
	return f
}

func newFrame(src slog.Source) *frame {
	f := &frame{source: src}
	obj := []byte{'{'}
	if src.Function != "" {
		obj = appendString(appendKeyJSON(obj, "function"), src.Function)
	}
	if src.File != "" {
		obj = appendString(appendKeyJSON(obj, "file"), src.File)
	}
	if src.Line != 0 {
		obj = appendInt(appendKeyJSON(obj, "line"), int64(src.Line))
	}
	f.object = string(append(obj, '}'))
	f.full = src.File + ":" + strconv.Itoa(src.Line)
	f.short = shortFile(src.File) + ":" + strconv.Itoa(src.Line)
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

func (f *frame) empty() bool { return f.source == slog.Source{} }

// text returns the position in the given format, which is not CallerObject.
func (f *frame) text(format CallerFormat) string {
	if format == CallerShort {
		return f.short
	}
	return f.full
}

// appendSourceJSON appends the source attribute and a comma.
func (e *encoder) appendSourceJSON(dst []byte, pc uintptr) []byte {
	if pc == 0 {
		return dst
	}
	f := frameOf(pc)
	if f.empty() {
		return dst
	}
	dst = append(appendKeyJSON(dst, e.sourceKey), f.object...)
	if e.caller != CallerObject {
		dst = appendString(dst[:len(dst)-len(f.object)], f.text(e.caller))
	}
	return append(dst, ',')
}

// source appends a *slog.Source among the attributes.
func (w *walker) source(dst []byte, key string, src *slog.Source) []byte {
	if src == nil || *src == (slog.Source{}) {
		return dst
	}
	if w.e.caller != CallerObject {
		return w.text(w.key(dst, key), newFrame(*src).text(w.e.caller))
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
