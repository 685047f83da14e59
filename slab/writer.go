package slab

import (
	"context"
	"io"

	"github.com/forebay-log/forebay/batch"
)

// Writer is being written; the signatures below are the ones it will have.
type Writer struct{}

func New(dst io.Writer, o *Options) (*Writer, error)             { panic("soon") }
func NewSink(dst batch.Sink, o *Options) (*Writer, error)        { panic("soon") }
func (w *Writer) Write(p []byte) (int, error)                    { panic("soon") }
func (w *Writer) WriteRecord(p []byte, m batch.Meta) error       { panic("soon") }
func (w *Writer) Flush(ctx context.Context) error                { panic("soon") }
func (w *Writer) Sync() error                                    { panic("soon") }
func (w *Writer) Close() error                                   { panic("soon") }
func (w *Writer) Shutdown(context.Context) (batch.Report, error) { panic("soon") }
func (w *Writer) Stats() Stats                                   { panic("soon") }

// Stats is a snapshot of a Writer.
type Stats struct {
	Name string
	batch.Account
	Refused                          uint64 // writes after Close; not part of the account
	SlabCount, SlabBytes, SlabsInUse int
	Sends, SendErrors                uint64 // batches offered, and answered with an error
	LastError                        string
}
