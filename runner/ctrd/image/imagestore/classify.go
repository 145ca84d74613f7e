package imagestore

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"monopod/internal/cause"
	"monopod/internal/jsonlimit"
	"monopod/runner"
	"monopod/runner/ctrd/bounded"
	"monopod/runner/ctrd/image"
	"monopod/runner/ctrd/image/registry"
)

// This file classifies errors of pulls. They come from containerd, its resolver and net/http, often as text only.

var (
	// answerOf matches the HTTP status of a registry as reported by containerd.
	answerOf = regexp.MustCompile(`unexpected status(?: code)?(?: from [A-Z]+ request to)? ?(\S*?):? (\d{3}[^:;]*)`)
	// messageOf matches the registry's own message.
	messageOf = regexp.MustCompile(`[sS]erver message: ([^;]+)`)
	dialed    = regexp.MustCompile(`dial \w+ (\S+?):? `)
	// lookup matches a name that is resolved, and what came of it.
	lookup = regexp.MustCompile(`lookup ([^ :]+).*`)
	// resolverFailed matches the errors of a DNS server that does not answer or has no answer, other than that the name does not exist.
	resolverFailed = regexp.MustCompile(`server misbehaving|i/o timeout|deadline exceeded|connection refused|Temporary failure|network is unreachable|no route to host`)
	proxied        = regexp.MustCompile(`proxyconnect \w+: `)
	// missing matches reports of an image or a blob that the registry lacks, and not those about local content and snapshots
	// ("content digest ...: not found", "snapshot ...: not found").
	missing = regexp.MustCompile(`(^|: )[^\s"]+/[^\s"]+: not found|content at \S+ not found|from remote: not found|(^|[ :])404 |manifest unknown|name unknown`)
)

// classify returns the cause of an error of Ensure with a waiting reason.
func classify(ref, reason string, err error) cause.Cause {
	text := oneLine(err.Error())
	c := cause.Cause{Image: ref, Registry: registryOf(ref), Detail: text}
	if i := strings.Index(text, bounded.ErrFull.Error()); i >= 0 { // while pulling, importing or unpacking
		c.Kind, c.Fault, c.Detail = cause.NoSpace, cause.Reserved, text[i:]
		return c
	}
	if errors.Is(err, image.ErrArtifact) { // also without a pull
		c.Kind = cause.ImageArtifact
		return c
	}
	switch reason {
	case runner.ReasonErrImageNeverPull:
		c.Kind = cause.ImageNeverPull
	case runner.ReasonInvalidImageName:
		c.Kind = cause.ImageName
	case runner.ReasonImageNotAllowed:
		c.Kind = cause.ImageNotAllowed
	case runner.ReasonSignatureValidationFailed:
		c.Kind = cause.ImageUnsigned
	case runner.ReasonImageInspectError:
		c.Kind = cause.ImageBroken
	default:
		if m, ok := errors.AsType[*registry.MirrorError](err); ok {
			c.Mirror, err, text = m.Hosts, m.Err, oneLine(m.Err.Error())
		}
		classifyPull(&c, err, text)
	}
	return c
}

// classifyPull sets the kind of a pull error and its details.
func classifyPull(c *cause.Cause, err error, text string) {
	c.Answer = answered(text)
	switch {
	case has(text, registry.ErrTooLarge.Error(), jsonlimit.ErrTooMany.Error()): // also where a login was asked for: that would not help
		c.Kind = cause.ImagePull
	case has(text, "no match for platform", "exec format error"):
		c.Kind = cause.ImagePlatform
	case hasStatus(text, "429") || has(text, "toomanyrequests"):
		c.Kind = cause.ImageRateLimited
	case hasStatus(text, "401") || has(text, "insufficient_scope", "authorization failed", "no basic auth credentials", "pull access denied"):
		c.Kind = cause.ImageUnauthorized
	case hasStatus(text, "403"):
		c.Kind = cause.ImageForbidden
	case has(text, "x509:", "certificate"):
		c.Kind, c.Detail = cause.RegistryCertificate, tail(text, "x509:")
	case has(text, "server gave HTTP response to HTTPS client"):
		c.Kind = cause.RegistryNotTLS
	case unresolved(c, text):
	case has(text, "dial tcp", "connection refused", "no route to host", "network is unreachable", "i/o timeout", "deadline exceeded", "EOF", "connection reset"):
		c.Kind, c.Detail = cause.RegistryUnreachable, last(text)
		if m := dialed.FindStringSubmatch(text); m != nil {
			c.Server = m[1]
		}
		if proxied.MatchString(text) {
			c.Fault = cause.Proxy
		}
	case errors.Is(err, unix.ENOSPC), has(text, unix.ENOSPC.Error()):
		c.Kind, c.Detail = cause.NoSpace, last(text)
	case errors.Is(err, registry.ErrStalled), has(text, registry.ErrStalled.Error()):
		c.Kind = cause.ImageStalled
	case missing.MatchString(text):
		c.Kind = cause.ImageNotFound
	case c.Answer != "":
		c.Kind = cause.RegistryError
	case has(text, "failed to authorize"):
		c.Kind = cause.ImageUnauthorized
	default:
		c.Kind = cause.ImagePull
	}
}

// unresolved reports whether a host name could not be resolved, and sets the cause: the name does not exist, or the DNS server failed.
func unresolved(c *cause.Cause, text string) bool {
	m := lookup.FindStringSubmatch(text)
	switch {
	case m == nil:
		return false
	case has(m[0], "no such host"):
	case resolverFailed.MatchString(m[0]):
		c.Fault = cause.Resolver
	default:
		return false
	}
	c.Kind, c.Server, c.Detail = cause.RegistryUnknown, m[1], m[0]
	if proxied.MatchString(text) {
		c.Fault = cause.Proxy
	}
	return true
}

// answered returns the HTTP status and the message of a registry, or "".
func answered(text string) string {
	m := answerOf.FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	answer := strings.TrimSpace(m[2])
	if s := messageOf.FindStringSubmatch(text); s != nil {
		answer += " (" + strings.TrimSpace(s[1]) + ")"
	}
	return answer
}

// registryOf returns the registry of a reference.
func registryOf(ref string) string {
	first, _, nested := strings.Cut(ref, "/")
	if nested && (strings.ContainsAny(first, ".:") || first == "localhost") {
		return first
	}
	return "docker.io"
}

// hasStatus reports whether a text contains an HTTP status code that is not a part of a digest.
func hasStatus(text, code string) bool { return has(text, " "+code+" ", ":"+code+" ") }

func has(text string, words ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
}

// tail returns the text that begins with a word.
func tail(text, word string) string {
	if i := strings.Index(text, word); i >= 0 {
		return text[i:]
	}
	return text
}

// last returns the last two parts of a wrapped error.
func last(text string) string {
	parts := strings.Split(text, ": ")
	if n := len(parts); n > 2 {
		return strings.Join(parts[n-2:], ": ")
	}
	return text
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
