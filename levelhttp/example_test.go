package levelhttp_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/forebay-log/forebay/levelhttp"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// The level would be that of an output: forebay.Output(level, w).
func ExampleNew() {
	level := new(slog.LevelVar)
	srv := httptest.NewServer(levelhttp.New(level))
	defer srv.Close()

	req, err := http.NewRequest(http.MethodPut, srv.URL, strings.NewReader(`{"level":"debug"}`))
	check(err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	check(err)
	defer resp.Body.Close()
	_, err = io.Copy(os.Stdout, resp.Body)
	check(err)
	fmt.Println(level.Level())
	http.DefaultClient.CloseIdleConnections()
	// Output:
	// {"level":"DEBUG"}
	// DEBUG
}
