package file_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/file"
)

// An Output writes to a log file, so callers do not wait for the disk. The file has at most 100
// MiB. Ten old files are kept, compressed.
func ExampleOpen() {
	dir, _ := os.MkdirTemp("", "forebay")
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "log", "app.log")

	f, err := file.Open(path, &file.Options{
		MakeDirs:    true,
		RotateBytes: 100 << 20,
		KeepFiles:   10,
		Compress:    "gzip",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	w, err := deliver.NewOutput(deliver.ToWriteCloser(f), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Fprintln(w, "ready")
	if err := w.Close(); err != nil {
		fmt.Println(err)
	}
	text, _ := os.ReadFile(path)
	fmt.Print(string(text))
	// Output: ready
}

func ExampleFile_Room() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	f, err := file.Open(filepath.Join(dir, "app.log"), &file.Options{RotateBytes: 100})
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	fmt.Fprintln(f, "one line")
	fmt.Println(f.Room())
	// Output: 91
}
