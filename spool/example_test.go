package spool_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/netsink"
	"github.com/forebay-log/forebay/spool"
)

// unused returns an address that refuses connections.
func unused() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// If the destination is down, its records are in the spool after Close.
func ExampleOptions() {
	tmp, err := os.MkdirTemp("", "spool")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(tmp)
	to := netsink.To("tcp://"+unused(), forebay.Spool(filepath.Join(tmp, "spool")),
		forebay.Delivery(func(o *deliver.OutputOptions) {
			o.Spool = spool.Options{MaxBytes: 4 << 30, Sync: "always", OverQuota: "refuse-new"}
			o.CloseTimeout = 200 * time.Millisecond
			o.OnError = func(batch.Event) {}
		}))
	log, err := forebay.New(to)
	if err != nil {
		fmt.Println(err)
		return
	}
	log.Info("hello")
	fmt.Println("lost:", log.Close() != nil)
	stored := log.Router().Stats().Outputs[0].Delivery.Spool
	fmt.Println("stored:", stored.Records)
	// Output:
	// lost: false
	// stored: 1
}
