package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"

	"monopod/internal/jsonlimit"
)

// MirrorError reports that mirrors answered with content that could not be used, and that the same request without them failed, too.
type MirrorError struct {
	// Hosts are the mirrors, as host:port.
	Hosts string
	// Mirror is the error with them, Err the one without.
	Mirror, Err error
}

// Error implements error.
func (e *MirrorError) Error() string {
	return fmt.Sprintf("%v; before that, the content of mirror %s could not be used: %v", e.Err, e.Hosts, e.Mirror)
}

// Unwrap returns the error without the mirrors.
func (e *MirrorError) Unwrap() error { return e.Err }

// wrongContent reports whether an error can come from an answer that is not what was asked for, or not all of it.
func wrongContent(err error) bool {
	_, syntax := errors.AsType[*json.SyntaxError](err)
	_, unfit := errors.AsType[*UnfitError](err)
	for _, target := range []error{io.ErrUnexpectedEOF, ErrStalled, ErrTooLarge, jsonlimit.ErrTooMany, digest.ErrDigestInvalidFormat, digest.ErrDigestInvalidLength} {
		if errors.Is(err, target) {
			return true
		}
	}
	return syntax || unfit || errdefs.IsFailedPrecondition(err) || errdefs.IsInvalidArgument(err) || errdefs.IsOutOfRange(err) || errdefs.IsNotImplemented(err)
}

// mirrors are those of one attempt to get something. containerd goes on to the next host after an answer that reports an error, but not
// after 200 with something else than what was asked for: a login page, half a layer, other bytes.
type mirrors struct {
	mu sync.Mutex
	// answered are the mirrors with a good status, left those that are not asked any longer; both by their base URL.
	answered, left map[string]bool
}

// afterMirror is the key of a context in which a mirror was left.
type afterMirror struct{}

// AfterMirror reports whether a mirror was left in this attempt: what it sent so far may be wrong.
func AfterMirror(ctx context.Context) bool { return ctx.Value(afterMirror{}) != nil }

// try calls once until it succeeds, or fails for another reason than wrong content of a mirror, each time without the mirrors that had
// answered. It returns those that were left, and why: their content is wrong, unless the error without them is the same. No mirror is left
// after an error that final accepts.
func (m *mirrors) try(ctx context.Context, final func(error) bool, once func(context.Context) error) (*MirrorError, error) {
	var misled *MirrorError
	for {
		err := once(ctx)
		if misled != nil {
			misled.Err = err
		}
		if err == nil || ctx.Err() != nil || final != nil && final(err) {
			return misled, err
		}
		hosts := ""
		if wrongContent(err) {
			hosts = m.leave()
		}
		switch {
		case hosts != "" && misled == nil:
			misled = &MirrorError{Hosts: hosts, Mirror: err}
		case hosts != "":
			misled.Hosts += ", " + hosts
		case misled == nil || misled.Mirror.Error() == err.Error():
			return nil, err
		default:
			return misled, misled
		}
		ctx = context.WithValue(ctx, afterMirror{}, true)
	}
}

// leave leaves the mirrors that have answered, and returns them.
func (m *mirrors) leave() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var hosts []string
	for _, base := range slices.Sorted(maps.Keys(m.answered)) {
		_, address, _ := strings.Cut(base, "://")
		host, _, _ := strings.Cut(address, "/")
		hosts = append(hosts, host)
	}
	if m.left == nil {
		m.left = map[string]bool{}
	}
	maps.Copy(m.left, m.answered)
	clear(m.answered)
	return strings.Join(slices.Compact(hosts), ", ")
}

// watch returns the hosts without the mirrors that were left, and notes the answers of the others. The last host is the registry itself.
func (m *mirrors) watch(hosts []docker.RegistryHost) []docker.RegistryHost {
	var kept []docker.RegistryHost
	for i, h := range hosts {
		base := h.Scheme + "://" + h.Host + h.Path
		if i < len(hosts)-1 {
			if m.has(base) {
				continue
			}
			own := *h.Client
			own.Transport = witness{own.Transport, func() { m.note(base) }}
			h.Client = &own
		}
		kept = append(kept, h)
	}
	return kept
}

func (m *mirrors) has(base string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.left[base]
}

func (m *mirrors) note(base string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left[base] { // of a request that was under way when it was left
		return
	}
	if m.answered == nil {
		m.answered = map[string]bool{}
	}
	m.answered[base] = true
}

// witness is a transport that reports good answers.
type witness struct {
	next http.RoundTripper
	good func()
}

// RoundTrip implements http.RoundTripper.
func (w witness) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := w.next.RoundTrip(r)
	if err == nil && resp.StatusCode/100 == 2 {
		w.good()
	}
	return resp, err
}
