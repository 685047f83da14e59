package loki

import (
	"maps"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/internal/httpsend"
)

// tokenEvery is the interval of checks for a new bearer token.
const tokenEvery = 10 * time.Second

// headers holds the headers of requests, one set per tenant and wire form. Requests share them, so
// they are immutable once in use.
type headers struct {
	c     *Config
	base  http.Header
	token atomic.Pointer[string] // from Config.HTTP.BearerTokenFile

	mu       sync.Mutex
	byTenant map[tenantWire]http.Header
	looked   time.Time
	modified time.Time
}

// tenantWire is the key of a set of headers.
type tenantWire struct {
	tenant string
	wire   string
}

func (h *headers) init(c *Config) error {
	h.c = c
	h.base = http.Header{
		"User-Agent": {"forebay"},
		// This key without a value is not sent. It tells the transport that a push may be
		// repeated on a new connection.
		"Idempotency-Key": {},
	}
	for name, value := range c.HTTP.Headers {
		h.base.Set(name, value)
	}
	switch {
	case c.HTTP.BearerToken != "":
		h.base.Set("Authorization", "Bearer "+c.HTTP.BearerToken)
	case c.HTTP.Username != "" || c.HTTP.Password != "":
		h.base.Set("Authorization", "Basic "+httpsend.Basic(c.HTTP.Username, c.HTTP.Password))
	case c.HTTP.BearerTokenFile != "":
		if err := h.readToken(time.Now(), true); err != nil {
			return err
		}
	}
	h.byTenant = map[tenantWire]http.Header{}
	return nil
}

// readToken reads the token file if it has changed, or if anyway is set.
func (h *headers) readToken(now time.Time, anyway bool) error {
	h.looked = now
	st, err := os.Stat(h.c.HTTP.BearerTokenFile)
	if err == nil && !anyway && st.ModTime().Equal(h.modified) {
		return nil
	}
	token, err := httpsend.ReadToken("loki", h.c.HTTP.BearerTokenFile)
	if err != nil {
		return err
	}
	if st != nil {
		h.modified = st.ModTime()
	}
	if t := h.token.Load(); t != nil && *t == token {
		return nil
	}
	h.token.Store(&token)
	h.base.Set("Authorization", "Bearer "+token)
	return nil
}

// get returns the headers for a tenant and a wire form. The tenant "" is the tenant of the Config.
func (h *headers) get(tenant string, w string) http.Header {
	if tenant == "" {
		tenant = h.c.Tenant
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := time.Now(); h.c.HTTP.BearerTokenFile != "" && now.Sub(h.looked) > tokenEvery {
		h.renew(now, false)
	}
	if have, ok := h.byTenant[tenantWire{tenant, w}]; ok {
		return have
	}
	n := maps.Clone(h.base)
	switch w {
	case wireProtobuf:
		n["Content-Type"] = []string{"application/x-protobuf"}
	case wireGzip:
		n["Content-Encoding"] = []string{"gzip"}
		fallthrough
	case wireJSON:
		n["Content-Type"] = []string{"application/json"}
	}
	if tenant != "" {
		n["X-Scope-Orgid"] = []string{tenant}
	}
	if len(h.byTenant) < maxTenants {
		h.byTenant[tenantWire{tenant, w}] = n
	}
	return n
}

// renew looks for a new token. While the file cannot be read, the old token stays in use.
func (h *headers) renew(now time.Time, anyway bool) {
	before := h.token.Load()
	h.base = maps.Clone(h.base) // requests in flight may read the old headers
	if h.readToken(now, anyway) == nil && h.token.Load() != before {
		clear(h.byTenant)
	}
}

// renewed reads the token file after a 401 for a request with the headers used, and reports whether
// it has a new token.
func (h *headers) renewed(used http.Header) bool {
	if h.c.HTTP.BearerTokenFile == "" {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.renew(time.Now(), true)
	return h.base.Get("Authorization") != used.Get("Authorization")
}

// maxTenants limits the number of header sets.
const maxTenants = 1024
