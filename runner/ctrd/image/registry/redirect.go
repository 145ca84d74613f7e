package registry

import "net/http"

// redirectGuard sends no credentials when a registry redirects to plain HTTP: an attacker on the network could read them, or request those
// of any registry that has a login.
type redirectGuard struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (d redirectGuard) RoundTrip(r *http.Request) (*http.Response, error) {
	if !exposed(r) {
		return d.next.RoundTrip(r)
	}
	r = r.Clone(r.Context())
	r.Header.Del("Authorization")
	resp, err := d.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	resp.Header.Del("WWW-Authenticate") // a challenge would be answered with the login for that host
	return resp, nil
}

// exposed reports whether a request is a redirect to plain HTTP from TLS or from another host. A configured plain HTTP registry is not
// exposed by this rule.
func exposed(r *http.Request) bool {
	if r.Response == nil || r.URL.Scheme != "http" {
		return false
	}
	first := r
	for first.Response != nil && first.Response.Request != nil {
		first = first.Response.Request
	}
	return first.URL.Scheme != "http" || first.URL.Host != r.URL.Host
}
