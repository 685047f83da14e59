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
	// The JSON of a stack consists of head, the first call, and more for each further call.
	head string // ,"Source":"dir/file.go:12","StackTrace":"
	more string // \n and the call, escaped
}

// maxFramesKept is the maximum number of frames in the cache, of about 500 bytes each. A program
// has a limited number of call sites, but errors can have invented stacks.
const maxFramesKept = 1 << 14

// frames caches frames by program counter, for source positions and stacks. all contains every
// cached frame. recent is a direct-mapped cache for all, which is read without a lock.
var frames struct {
	recent [1 << 12]atomic.Pointer[Frame]
	mu     sync.Mutex
	all    map[uintptr]*Frame // all cached frames; guarded by mu
}

// FrameOf returns the frame of pc, a program counter returned by runtime.Callers. It allocates only
// on the first call for a pc.
func FrameOf(pc uintptr) *Frame {
	at := &frames.recent[uint64(pc)*0x9e3779b97f4a7c15>>52]
	if f := at.Load(); f != nil && f.pc == pc {
		return f
	}
	frames.mu.Lock()
	defer frames.mu.Unlock()
	f := frames.all[pc]
	if f == nil {
		f = resolve(pc)
		if frames.all == nil || len(frames.all) == maxFramesKept {
			frames.all = map[uintptr]*Frame{}
		}
		frames.all[pc] = f
	}
	at.Store(f)
	return f
}

func resolve(pc uintptr) *Frame {
	rf, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	f := NewFrame(slog.Source{Function: rf.Function, File: rf.File, Line: rf.Line})
	f.pc = pc
	f.head = string(appendHead(nil, rf.File, rf.Line))
	f.more = string(appendCall([]byte(`\n`), rf.Function, rf.File, rf.Line))
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

// appendCall appends the text that call returns, escaped for a JSON string.
func appendCall(dst []byte, function, file string, line int) []byte {
	if function != "" {
		dst = append(jsontext.AppendEscaped(dst, function), ' ')
	}
	dst = append(jsontext.AppendEscaped(dst, file), ':')
	return strconv.AppendInt(dst, int64(line), 10)
}

// appendHead appends the member Source, and the member StackTrace up to its first call.
func appendHead(dst []byte, file string, line int) []byte {
	dst = append(jsontext.AppendEscaped(append(dst, `,"Source":"`...), shortFile(file)), ':')
	dst = strconv.AppendInt(dst, int64(line), 10)
	return append(dst, `","StackTrace":"`...)
}
