package kafka

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// forms describes the supported forms of a destination. It is part of error messages.
const forms = "kafka://HOST:PORT,HOST:PORT/TOPIC?key=value, or kafka+tls:// for TLS"

// ParseURL parses a destination such as
//
//	kafka://b1:9092,b2:9092/logs.{app}?key={user}&compression=lz4
//	kafka+tls://user:password@b1:9093/logs?mechanism=plain
//
// In user and password, %XX encodes any character. Parameters: key, trace, compression, client,
// mechanism, autocreate, batch, window, timeout, request-timeout, dial-timeout. Errors never contain
// text that may be a password.
func ParseURL(destination string) (Config, error) {
	c, err := parseURL(destination)
	if err != nil {
		return Config{}, fmt.Errorf("kafka: cannot read the destination: %w", err)
	}
	return c, nil
}

// parseURL implements ParseURL. Its errors do not begin with the package name.
func parseURL(s string) (c Config, err error) {
	scheme, rest, ok := strings.Cut(s, "://")
	switch strings.ToLower(scheme) {
	case "kafka":
	case "kafka+tls":
		c.TLS = &tls.Config{}
	default:
		ok = false
	}
	if !ok {
		return c, errors.New("want " + forms)
	}
	// Package net/url cannot parse several hosts in one URL.
	rest, query, _ := strings.Cut(rest, "?")
	// A password may contain @, so the last @ separates the credentials.
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, password, _ := strings.Cut(rest[:at], ":")
		rest = rest[at+1:]
		if c.User, err = url.PathUnescape(user); err == nil {
			c.Password, err = url.PathUnescape(password)
		}
		if err != nil {
			return c, errors.New("the user or the password has a % that does not begin %XX; write %25")
		}
	}
	hosts, topic, _ := strings.Cut(rest, "/")
	if hosts == "" {
		return c, errors.New("the broker is missing: want " + forms)
	}
	c.Brokers = strings.Split(hosts, ",")
	if c.Topic, err = url.PathUnescape(topic); err != nil || c.Topic == "" {
		return c, errors.New("the topic is missing: want " + forms)
	}
	params, err := url.ParseQuery(query)
	if err != nil {
		return c, errors.New("the text after ? is not a query, such as ?key={user}")
	}
	for name, values := range params {
		set := parameters[name]
		switch {
		case set == nil && slices.Contains([]string{"tls", "ssl"}, strings.ToLower(name)):
			return c, errors.New("there is no parameter " + strings.ToLower(name) + ": for TLS, write kafka+tls://")
		case set == nil:
			return c, fmt.Errorf("unknown parameter %.40q: want one of %s", name, strings.Join(parameterNames(), ", "))
		case len(values) > 1:
			return c, fmt.Errorf("the parameter %s is given twice", name)
		}
		if err := set(&c, values[0]); err != nil {
			return c, fmt.Errorf("the parameter %s cannot be read: %w", name, err)
		}
	}
	return c, nil
}

// parameters contains the parameters of the query, each with the function that sets its field.
var parameters = map[string]func(*Config, string) error{
	"key":             func(c *Config, v string) error { c.Key = v; return nil },
	"trace":           func(c *Config, v string) error { c.TraceField = v; return nil },
	"compression":     func(c *Config, v string) error { c.Compression = v; return nil },
	"client":          func(c *Config, v string) error { c.ClientID = v; return nil },
	"mechanism":       func(c *Config, v string) error { c.Mechanism = v; return nil },
	"autocreate":      func(c *Config, v string) (err error) { c.AutoCreate, err = strconv.ParseBool(v); return err },
	"batch":           func(c *Config, v string) (err error) { c.BatchBytes, err = strconv.Atoi(v); return err },
	"window":          func(c *Config, v string) (err error) { c.Window, err = strconv.Atoi(v); return err },
	"timeout":         func(c *Config, v string) (err error) { c.Timeout, err = time.ParseDuration(v); return err },
	"request-timeout": func(c *Config, v string) (err error) { c.RequestTimeout, err = time.ParseDuration(v); return err },
	"dial-timeout":    func(c *Config, v string) (err error) { c.DialTimeout, err = time.ParseDuration(v); return err },
}

// parameterNames returns the names of parameters, sorted.
func parameterNames() []string {
	var names []string
	for name := range parameters {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
