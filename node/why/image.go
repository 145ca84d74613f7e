package why

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
)

// isImage reports whether what failed is getting an image.
func isImage(kind cause.Kind) bool {
	switch kind {
	case cause.ImagePull, cause.ImageNeverPull, cause.ImageName, cause.ImageBroken, cause.ImageUnsigned, cause.ImageNotAllowed:
		return true
	}
	return false
}

// image is about an image that cannot be had.
func (b *builder) image() {
	t := b.Trouble
	c := t.Cause
	ref := cmp.Or(c.Image, "of the pod")
	if spec := b.spec(t.Container); spec != nil {
		ref = spec.Image
	}
	field, detail := b.field(t.Container), oneLine(c.Detail)
	b.cause(cause.ImagePull, t.Container, "%s its image %s cannot be had", b.whose(t.Container), ref)
	switch {
	case c.Kind == cause.NoSpace && c.Fault == cause.Reserved:
		b.cause(c.Kind, t.Container, "%s", detail)
		b.act("make room on the disk (df -h shows where; monopod images rm IMAGE removes an image), or lower evictionHard%s, which images leave free", inFile(b.Places.Config))
	case c.Kind == cause.ImageNeverPull:
		b.cause(c.Kind, t.Container, "it is not on this machine, and imagePullPolicy Never forbids to ask a registry")
		b.act("%sset imagePullPolicy: IfNotPresent in %s", b.preload(), b.place())
	case c.Kind == cause.ImageName:
		b.cause(c.Kind, t.Container, "that is not the name of an image: %s", detail)
		b.act("correct %s.image in %s, such as registry.example.com/app:1.2", field, b.place())
	case c.Kind == cause.ImageNotAllowed:
		b.cause(c.Kind, t.Container, "%s", detail)
		b.act("correct %s.image in %s, or add a rule for it to imagePolicy%s and restart monopod", field, b.place(), inFile(b.Places.Config))
	case c.Kind == cause.ImageUnsigned:
		b.cause(c.Kind, t.Container, "imagePolicy asks for a signature by one of its keys: %s", detail)
		b.act("sign it: cosign sign --key KEY %s; or correct the keys of its rule in imagePolicy%s", ref, inFile(b.Places.Config))
	case c.Kind == cause.ImageBroken:
		b.cause(c.Kind, t.Container, "what is on this machine of it cannot be used: %s", detail)
		b.act("remove the image so that it is pulled again: monopod images rm --force %s", ref)
	default:
		advice := b.registryCause(c, field, detail)
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
func (b *builder) registryCause(why cause.Cause, field, detail string) []string {
	c, host, answer, edit := b.Trouble.Container, why.Registry, why.Answer, " in "+b.place()
	again := "correct " + field + ".image" + edit
	login := "log in: docker login " + host + " --config writes a config.json; name it in registryConfig" + inFile(b.Places.Config) + ", or give the pod imagePullSecrets"
	if b.Places.Logins != "" {
		login = "put a login for " + host + " into " + b.Places.Logins + ", or give the pod imagePullSecrets"
	}
	switch why.Kind {
	case cause.ImagePlatform:
		b.cause(why.Kind, c, "the image exists at %s, but not for the processor of this machine", host)
		return []string{again + ": take an image that is built for this machine"}
	case cause.ImageRateLimited:
		b.cause(why.Kind, c, "the registry %s answers %s: it was asked too often", host, cmp.Or(answer, "429 Too Many Requests"))
		return []string{"wait, or " + login}
	case cause.ImageUnauthorized:
		b.cause(why.Kind, c, "the registry %s answers %s: it wants a login, or has no such image and does not say so", host, cmp.Or(answer, "401 Unauthorized"))
		return []string{again + ", if the name is wrong", login}
	case cause.ImageForbidden:
		b.cause(why.Kind, c, "the registry %s answers %s: this login may not have it", host, cmp.Or(answer, "403 Forbidden"))
		return []string{login, again + ", if the name is wrong"}
	case cause.RegistryCertificate:
		b.cause(why.Kind, c, "the certificate of the registry %s is not trusted: %s", host, detail)
		return []string{"put the registry's CA as ca.crt into /etc/monopod/certs.d/" + host + " (registryHostsDirs" + inFile(b.Places.Config) + "); look at the clock too (date)"}
	case cause.RegistryNotTLS:
		b.cause(why.Kind, c, "the registry %s speaks plain HTTP, which is only used to this machine itself", host)
		return []string{"give the registry a certificate, or allow http to it by a hosts.toml in /etc/monopod/certs.d/" + host, b.offline()}
	case cause.RegistryUnknown:
		b.cause(why.Kind, c, "the name %s of the registry cannot be looked up: %s", why.Server, detail)
		return []string{again + ", if the registry's name is wrong", "look at the network and DNS of this machine (/etc/resolv.conf)", b.offline()}
	case cause.RegistryUnreachable:
		where := host
		if why.Server != "" {
			where += " (" + why.Server + ")"
		}
		b.cause(why.Kind, c, "the registry %s does not answer: %s", where, detail)
		return []string{"look whether the registry runs and can be reached from this machine", again + ", if the address is wrong", b.offline()}
	case cause.NoSpace:
		b.cause(why.Kind, c, "the disk is full: %s", detail)
		return []string{"make room on the disk (df -h shows where)"}
	case cause.ImageStalled:
		b.cause(why.Kind, c, "the registry %s sent nothing for 5 minutes", host)
		return []string{"look at the network of this machine"}
	case cause.ImageNotFound:
		b.cause(why.Kind, c, "the registry %s answers %s: it has no such image or tag", host, cmp.Or(answer, "404 Not Found"))
		return []string{again + ": the name or the tag is wrong, or was never pushed"}
	case cause.RegistryError:
		b.cause(why.Kind, c, "the registry %s answers %s", host, answer)
		return []string{"ask who runs the registry, if it does not pass"}
	}
	b.cause(cause.ImagePull, c, "%s", detail)
	return []string{again + ", or what the message names"}
}
