package image

import (
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"monopod/internal/cause"
	"monopod/runner"
	"monopod/runner/ctrd/bounded"
)

// Errors of pulls come from containerd, its resolver and net/http, often as texts only. This file is where they become causes.

var (
	// answerOf is how the library that pulls reports the response of a registry.
	answerOf = regexp.MustCompile(`unexpected status(?: code)?(?: from [A-Z]+ request to)? ?(\S*?):? (\d{3}[^:;]*)`)
	// messageOf is the registry's own message.
	messageOf = regexp.MustCompile(`[sS]erver message: ([^;]+)`)
	dialed    = regexp.MustCompile(`dial \w+ (\S+?):? `)
	lookup    = regexp.MustCompile(`lookup ([^ :]+)`)
	// notThere is how a registry that lacks an image or a blob is reported. What containerd does not find on this machine
	// ("content digest ...: not found", "snapshot ...: not found") is something else.
	notThere = regexp.MustCompile(`(^|: )[^\s"]+/[^\s"]+: not found|content at \S+ not found|from remote: not found|(^|[ :])404 |manifest unknown|name unknown`)
)

// classify returns the cause of an error that Ensure returns for a reference, with the waiting reason that it has.
func classify(ref, reason string, err error) cause.Cause {
	text := oneLine(err.Error())
	c := cause.Cause{Image: ref, Registry: registryOf(ref), Detail: text}
	if i := strings.Index(text, bounded.ErrFull.Error()); i >= 0 { // while pulling, importing or unpacking
		c.Kind, c.Fault, c.Detail = cause.NoSpace, cause.Reserved, text[i:]
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
		classifyPull(&c, err, text)
	}
	return c
}

// classifyPull sets the kind of an error of a pull, and what that needs.
func classifyPull(c *cause.Cause, err error, text string) {
	c.Answer = answered(text)
	name := lookup.FindStringSubmatch(text)
	switch {
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
	case name != nil && has(text, "no such host", "server misbehaving", "i/o timeout", "connection refused", "Temporary failure"):
		c.Kind, c.Server, c.Detail = cause.RegistryUnknown, name[1], last(text)
	case has(text, "dial tcp", "connection refused", "no route to host", "network is unreachable", "i/o timeout", "deadline exceeded", "EOF", "connection reset"):
		c.Kind, c.Detail = cause.RegistryUnreachable, last(text)
		if m := dialed.FindStringSubmatch(text); m != nil {
			c.Server = m[1]
		}
	case errors.Is(err, unix.ENOSPC), has(text, unix.ENOSPC.Error()):
		c.Kind, c.Detail = cause.NoSpace, last(text)
	case errors.Is(err, errStalled), has(text, errStalled.Error()):
		c.Kind = cause.ImageStalled
	case notThere.MatchString(text):
		c.Kind = cause.ImageNotFound
	case c.Answer != "":
		c.Kind = cause.RegistryError
	case has(text, "failed to authorize"):
		c.Kind = cause.ImageUnauthorized
	default:
		c.Kind = cause.ImagePull
	}
}

// answered is the status and the message that a registry gave; empty when it gave none.
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

// registryOf is the registry that a reference names.
func registryOf(ref string) string {
	first, _, nested := strings.Cut(ref, "/")
	if nested && (strings.ContainsAny(first, ".:") || first == "localhost") {
		return first
	}
	return "docker.io"
}

// failedOnContent reports whether a pull has failed at a manifest that it could not read, or a layer that it could not
// unpack. Else it is the registry or the network that fails, and nothing here is to be compared each time.
func failedOnContent(err error) bool {
	if _, bad := errors.AsType[*json.SyntaxError](err); bad {
		return true
	}
	return err != nil && has(err.Error(), "extract layer", "wrong diff id")
}

// hasStatus reports whether a text has a status of HTTP with its name; the digits alone may be part of a digest.
func hasStatus(text, code string) bool { return has(text, " "+code+" ", ":"+code+" ") }

func has(text string, words ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
}

// tail is the text from a word on.
func tail(text, word string) string {
	if i := strings.Index(text, word); i >= 0 {
		return text[i:]
	}
	return text
}

// last is the innermost part of a wrapped error.
func last(text string) string {
	parts := strings.Split(text, ": ")
	if n := len(parts); n > 2 {
		return strings.Join(parts[n-2:], ": ")
	}
	return text
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
