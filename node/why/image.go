package why

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// isImage says that what failed is getting an image.
func isImage(reason string) bool {
	return slices.Contains([]string{"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError", "SignatureValidationFailed", "ImageNotAllowed"}, reason)
}

var (
	// status is how the library that pulls words an answer of a registry.
	status = regexp.MustCompile(`unexpected status(?: code)?(?: from [A-Z]+ request to)? ?(\S*?):? (\d{3}[^:;]*)`)
	// message is what a registry has to say itself.
	message = regexp.MustCompile(`[sS]erver message: ([^;]+)`)
	dialed  = regexp.MustCompile(`dial \w+ (\S+?):? `)
	lookup  = regexp.MustCompile(`lookup ([^ :]+)`)
)

// image is about an image that cannot be had.
func (b *builder) image() {
	t := b.Trouble
	ref := "of the pod"
	field := b.field(t.Container)
	if c := b.spec(t.Container); c != nil {
		ref = c.Image
	}
	text := stripSteps(oneLine(t.Message))
	b.cause(ImagePull, t.Container, "%s its image %s cannot be had", b.whose(t.Container), ref)
	if full := strings.Index(text, "the disk is too full for it"); full >= 0 { // found while pulling, importing or unpacking
		b.cause(NoSpace, t.Container, "%s", text[full:])
		b.act("make room on the disk (df -h shows where; monopod images rm IMAGE removes an image), or lower evictionHard%s, which images leave free", inFile(b.Places.Config))
		b.imageNext()
		return
	}
	switch t.Reason {
	case "ErrImageNeverPull":
		b.cause(ImageNeverPull, t.Container, "it is not on this machine, and imagePullPolicy Never forbids to ask a registry")
		b.act("%sset imagePullPolicy: IfNotPresent in %s", b.preload(), b.place())
	case "InvalidImageName":
		b.cause(ImageName, t.Container, "that is not the name of an image: %s", text)
		b.act("correct %s.image in %s, such as registry.example.com/app:1.2", field, b.place())
	case "ImageNotAllowed":
		b.cause(ImageNotAllowed, t.Container, "%s", text)
		b.act("correct %s.image in %s, or add a rule for it to imagePolicy%s and restart monopod", field, b.place(), inFile(b.Places.Config))
	case "SignatureValidationFailed":
		b.cause(ImageUnsigned, t.Container, "imagePolicy asks for a signature by one of its keys: %s", text)
		b.act("sign it: cosign sign --key KEY %s; or correct the keys of its rule in imagePolicy%s", ref, inFile(b.Places.Config))
	case "ImageInspectError":
		b.cause(ImageBroken, t.Container, "what is on this machine of it cannot be used: %s", text)
		b.act("remove the image so that it is pulled again: monopod images rm --force %s", ref)
	default:
		advice := b.registryCause(ref, field, text)
		if offline := b.offline(); b.asksAlways(t.Container) && !slices.Contains(advice, offline) {
			advice = append(advice, offline)
		}
		for _, a := range advice {
			if a != "" {
				b.act("%s", a)
			}
		}
	}
	b.imageNext()
}

// whose begins a sentence about a container.
func (b *builder) whose(container string) string {
	if container == "" {
		return "the pod does not start:"
	}
	if st := b.status(container); st != nil && st.State.Running != nil {
		return "the edit of container " + container + " is not carried out, what ran before goes on:"
	}
	return "container " + container + " does not start:"
}

// imageNext puts what happens next before what can be done.
func (b *builder) imageNext() {
	at := slices.IndexFunc(b.chain.Steps, func(s Step) bool { return s.Kind == Action })
	b.retried("it is tried again")
	last := b.chain.Steps[len(b.chain.Steps)-1]
	if at >= 0 {
		b.chain.Steps = slices.Insert(b.chain.Steps[:len(b.chain.Steps)-1], at, last)
	}
}

// preload is the advice to do without a registry, which begins a sentence that goes on with another way.
func (b *builder) preload() string {
	if b.Places.Preload == "" {
		return ""
	}
	return "put its archive (docker save) into " + b.Places.Preload + ", or "
}

// asksAlways reports whether the registry is asked about the image of a container even when it is here.
func (b *builder) asksAlways(container string) bool {
	c := b.spec(container)
	return c != nil && c.ImagePullPolicy == corev1.PullAlways
}

// offline is the advice to do without a registry, as a sentence of its own; empty: there is none. With the policy Always the registry is asked also about
// an image that is here.
func (b *builder) offline() string {
	put := strings.TrimSuffix(b.preload(), ", or ")
	if !b.asksAlways(b.Trouble.Container) {
		return put
	}
	always := "set " + b.field(b.Trouble.Container) + ".imagePullPolicy: IfNotPresent in " + b.place() + ": Always asks the registry also when the image is on this machine"
	if put == "" {
		return always
	}
	return always + "; if it is not, " + put
}

// registryCause says what the registry answered, or why it did not, and returns what to do.
func (b *builder) registryCause(ref, field, text string) []string {
	c, host, edit := b.Trouble.Container, registryOf(ref), " in "+b.place()
	answer, name := answered(text), lookup.FindStringSubmatch(text)
	again := "correct " + field + ".image" + edit
	login := "log in: docker login " + host + " --config writes a config.json; name it in registryConfig" + inFile(b.Places.Config) + ", or give the pod imagePullSecrets"
	if b.Places.Logins != "" {
		login = "put a login for " + host + " into " + b.Places.Logins + ", or give the pod imagePullSecrets"
	}
	switch {
	case has(text, "no match for platform", "exec format error"):
		b.cause(ImagePlatform, c, "the image exists at %s, but not for the processor of this machine", host)
		return []string{again + ": take an image that is built for this machine"}
	case has(text, "429", "toomanyrequests"):
		b.cause(ImageRateLimited, c, "the registry %s answers %s: it was asked too often", host, cmp.Or(answer, "429 Too Many Requests"))
		return []string{"wait, or " + login}
	case has(text, "401 ", "insufficient_scope", "authorization failed", "no basic auth credentials", "failed to authorize", "pull access denied"):
		b.cause(ImageUnauthorized, c, "the registry %s answers %s: it wants a login, or has no such image and does not say so", host, cmp.Or(answer, "401 Unauthorized"))
		return []string{again + ", if the name is wrong", login}
	case has(text, "403 "):
		b.cause(ImageForbidden, c, "the registry %s answers %s: this login may not have it", host, answer)
		return []string{login, again + ", if the name is wrong"}
	case has(text, "x509:", "certificate"):
		b.cause(RegistryCertificate, c, "the certificate of the registry %s is not trusted: %s", host, tail(text, "x509:"))
		return []string{"put the registry's CA as ca.crt into /etc/monopod/certs.d/" + host + " (registryHostsDirs" + inFile(b.Places.Config) + "); look at the clock too (date)"}
	case has(text, "server gave HTTP response to HTTPS client"):
		b.cause(RegistryNotTLS, c, "the registry %s speaks plain HTTP, which is only used to this machine itself", host)
		return []string{"give the registry a certificate, or allow http to it by a hosts.toml in /etc/monopod/certs.d/" + host, b.offline()}
	case name != nil && has(text, "no such host", "server misbehaving", "i/o timeout", "connection refused", "Temporary failure"):
		b.cause(RegistryUnknown, c, "the name %s of the registry cannot be looked up: %s", name[1], last(text))
		return []string{again + ", if the registry's name is wrong", "look at the network and DNS of this machine (/etc/resolv.conf)", b.offline()}
	case has(text, "dial tcp", "connection refused", "no route to host", "network is unreachable", "i/o timeout", "deadline exceeded", "EOF", "connection reset"):
		where := host
		if m := dialed.FindStringSubmatch(text); m != nil {
			where += " (" + m[1] + ")"
		}
		b.cause(RegistryUnreachable, c, "the registry %s does not answer: %s", where, last(text))
		return []string{"look whether the registry runs and can be reached from this machine", again + ", if the address is wrong", b.offline()}
	case has(text, "no space left on device"):
		b.cause(NoSpace, c, "the disk is full: %s", last(text))
		return []string{"make room on the disk (df -h shows where)"}
	case has(text, "no data from the registry"):
		b.cause(ImageStalled, c, "the registry %s sent nothing for 5 minutes", host)
		return []string{"look at the network of this machine"}
	case has(text, ": not found", "404 ", "manifest unknown", "name unknown"):
		b.cause(ImageNotFound, c, "the registry %s answers %s: it has no such image or tag", host, cmp.Or(answer, "404 Not Found"))
		return []string{again + ": the name or the tag is wrong, or was never pushed"}
	case answer != "":
		b.cause(RegistryError, c, "the registry %s answers %s", host, answer)
		return []string{"ask who runs the registry, if it does not pass"}
	}
	b.cause(ImagePull, c, "%s", text)
	return []string{again + ", or what the message names"}
}

// answered is the status and the message that a registry gave; empty when it gave none.
func answered(text string) string {
	m := status.FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	answer := strings.TrimSpace(m[2])
	if s := message.FindStringSubmatch(text); s != nil {
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
