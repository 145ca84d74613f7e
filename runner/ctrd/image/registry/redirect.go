package registry

import "net/http"

// discreet keeps credentials from going where a registry has sent us over plain HTTP: who is on the wire could read them, or
// ask for them in the name of any registry that we have a login for.
type discreet struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (d discreet) RoundTrip(r *http.Request) (*http.Response, error) {
	if !exposed(r) {
		return d.next.RoundTrip(r)
	}
	r = r.Clone(r.Context())
	r.Header.Del("Authorization")
	resp, err := d.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	resp.Header.Del("WWW-Authenticate") // it would be answered with the login for that host
	return resp, nil
}

// exposed says that a request is what became of another one, and goes over plain HTTP where that one did not go: it went by
// TLS, or to another host, which a configuration may allow.
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
