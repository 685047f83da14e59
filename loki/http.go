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

// tokenCheckInterval is the shortest interval between two checks of the token file. After a
// response with status 401 the file is read immediately.
const tokenCheckInterval = 10 * time.Second

// The type headers caches the headers of requests: one set for each tenant and each value of
// Config.Wire. Requests share the sets, so a set does not change once it is in use. All methods
// except init are safe for concurrent use.
type headers struct {
	c     *Config
	token atomic.Pointer[string] // from Config.HTTP.BearerTokenFile; nil without it

	mu        sync.Mutex                 // guards the fields below; no other lock is acquired under it
	base      http.Header                // the headers that all sets have in common
	byTenant  map[tenantWire]http.Header // cached sets, at most maxTenants
	checkedAt time.Time                  // when the token file was last checked
	modTime   time.Time                  // modification time of the token file when it was last read
}

// A tenantWire is the key of a set of headers: the name of a tenant and a value of Config.Wire.
type tenantWire struct {
	tenant string
	wire   string
}

// init sets the headers that are the same for all tenants. It fails if the token file cannot be
// read.
func (h *headers) init(c *Config) error {
	h.c = c
	h.base = http.Header{
		"User-Agent": {"forebay"},
		// A key without values is not sent by net/http. Because of this key, http.Transport repeats
		// a push on a new connection if the server has closed the idle connection.
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

// readToken reads the token file if its modification time has changed, or if force is true. The
// caller holds h.mu, except in init, which runs before h is shared.
func (h *headers) readToken(now time.Time, force bool) error {
	h.checkedAt = now
	st, err := os.Stat(h.c.HTTP.BearerTokenFile)
	if err == nil && !force && st.ModTime().Equal(h.modTime) {
		return nil
	}
	token, err := httpsend.ReadToken("loki", h.c.HTTP.BearerTokenFile)
	if err != nil {
		return err
	}
	if st != nil {
		h.modTime = st.ModTime()
	}
	if t := h.token.Load(); t != nil && *t == token {
		return nil
	}
	h.token.Store(&token)
	h.base.Set("Authorization", "Bearer "+token)
	return nil
}

// get returns the headers for a tenant and a value of Config.Wire. An empty tenant means the tenant
// of the Config. The caller must not modify the headers, because requests share them.
func (h *headers) get(tenant string, w string) http.Header {
	if tenant == "" {
		tenant = h.c.Tenant
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := time.Now(); h.c.HTTP.BearerTokenFile != "" && now.Sub(h.checkedAt) > tokenCheckInterval {
		h.reload(now, false)
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

// reload reads the token file like readToken, and discards the cached headers if the token has
// changed. While the file cannot be read, the old token remains in use. The caller holds h.mu.
func (h *headers) reload(now time.Time, force bool) {
	before := h.token.Load()
	h.base = maps.Clone(h.base) // a copy, because requests in flight may read the old headers
	if h.readToken(now, force) == nil && h.token.Load() != before {
		clear(h.byTenant)
	}
}

// reloadAfter401 reads the token file after a response with status 401. The parameter sent contains
// the headers of the request. If their token differs from the current one, a repeated request may
// succeed, and reloadAfter401 returns true.
func (h *headers) reloadAfter401(sent http.Header) bool {
	if h.c.HTTP.BearerTokenFile == "" {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reload(time.Now(), true)
	return h.base.Get("Authorization") != sent.Get("Authorization")
}

// maxTenants limits the number of cached header sets. If it is exceeded, each request gets a new
// set.
const maxTenants = 1024
