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

// imagePull explains why the image of a container cannot be pulled or used.
type imagePull struct {
	*builder
	// container is empty for an image of the pod itself.
	container string
	// path is the path of the container in the manifest.
	path string
}

func explainImage(b *builder) {
	(&imagePull{builder: b, container: b.Trouble.Container, path: b.field(b.Trouble.Container)}).explain()
}

func (p *imagePull) explain() {
	t := p.Trouble
	c := t.Cause
	ref := cmp.Or(c.Image, "of the pod")
	if spec := p.spec(t.Container); spec != nil {
		ref = spec.Image
	}
	field, detail := p.path, oneLine(c.Detail)
	p.cause(cause.ImagePull, t.Container, "%s its image %s cannot be had", p.whose(), ref)
	switch {
	case c.Kind == cause.NoSpace && c.Fault == cause.Reserved:
		p.cause(c.Kind, t.Container, "%s", detail)
		p.act("make room on the disk (df -h shows where; monopod images rm IMAGE removes an image), or lower evictionHard%s, which images leave free", inFile(p.Places.Config))
	case c.Kind == cause.ImageNeverPull:
		p.cause(c.Kind, t.Container, "it is not on this machine, and imagePullPolicy Never forbids to ask a registry")
		p.act("%sset imagePullPolicy: IfNotPresent in %s", p.preload(), p.place())
	case c.Kind == cause.ImageName:
		p.cause(c.Kind, t.Container, "that is not the name of an image: %s", detail)
		p.act("correct %s.image in %s, such as registry.example.com/app:1.2", field, p.place())
	case c.Kind == cause.ImageNotAllowed:
		p.cause(c.Kind, t.Container, "%s", detail)
		p.act("correct %s.image in %s, or add a rule for it to imagePolicy%s and restart monopod", field, p.place(), inFile(p.Places.Config))
	case c.Kind == cause.ImageUnsigned:
		p.cause(c.Kind, t.Container, "imagePolicy asks for a signature by one of its keys: %s", detail)
		p.act("sign it: cosign sign --key KEY %s; or correct the keys of its rule in imagePolicy%s", ref, inFile(p.Places.Config))
	case c.Kind == cause.ImageBroken:
		p.cause(c.Kind, t.Container, "what is on this machine of it cannot be used: %s", detail)
		p.act("remove the image so that it is pulled again: monopod images rm --force %s", ref)
	default:
		advice := p.registryCause(c, detail)
		if offline := p.offline(); p.asksAlways() && !slices.Contains(advice, offline) {
			advice = append(advice, offline)
		}
		for _, a := range advice {
			if a != "" {
				p.act("%s", a)
			}
		}
	}
	p.imageNext()
}

// whose begins a sentence about a container.
func (p *imagePull) whose() string {
	container := p.container
	if container == "" {
		return "the pod does not start:"
	}
	if st := p.status(container); st != nil && st.State.Running != nil {
		return "the edit of container " + container + " is not carried out, what ran before goes on:"
	}
	return "container " + container + " does not start:"
}

// imageNext puts what happens next before what can be done.
func (p *imagePull) imageNext() {
	at := slices.IndexFunc(p.chain.Steps, func(s Step) bool { return s.Kind == Action })
	p.retried("it is tried again")
	last := p.chain.Steps[len(p.chain.Steps)-1]
	if at >= 0 {
		p.chain.Steps = slices.Insert(p.chain.Steps[:len(p.chain.Steps)-1], at, last)
	}
}

// preload is the advice to do without a registry, as the beginning of a sentence with an alternative.
func (p *imagePull) preload() string {
	if p.Places.Preload == "" {
		return ""
	}
	return "put its archive (docker save) into " + p.Places.Preload + ", or "
}

// asksAlways reports whether the registry is asked about the image of a container even when it is here.
func (p *imagePull) asksAlways() bool {
	c := p.spec(p.container)
	return c != nil && c.ImagePullPolicy == corev1.PullAlways
}

// offline is the advice to do without a registry, as a sentence of its own; empty: there is none. With the policy Always the registry is asked also about
// an image that is here.
func (p *imagePull) offline() string {
	put := strings.TrimSuffix(p.preload(), ", or ")
	if !p.asksAlways() {
		return put
	}
	always := "set " + p.path + ".imagePullPolicy: IfNotPresent in " + p.place() + ": Always asks the registry also when the image is on this machine"
	if put == "" {
		return always
	}
	return always + "; if it is not, " + put
}

// registryCause adds what the registry answered, or why it did not, and returns what to do.
func (p *imagePull) registryCause(why cause.Cause, detail string) []string {
	field, c, host, answer, edit := p.path, p.container, why.Registry, why.Answer, " in "+p.place()
	again := "correct " + field + ".image" + edit
	login := "log in: docker login " + host + " --config writes a config.json; name it in registryConfig" + inFile(p.Places.Config) + ", or give the pod imagePullSecrets"
	if p.Places.Logins != "" {
		login = "put a login for " + host + " into " + p.Places.Logins + ", or give the pod imagePullSecrets"
	}
	switch why.Kind {
	case cause.ImagePlatform:
		p.cause(why.Kind, c, "the image exists at %s, but not for the processor of this machine", host)
		return []string{again + ": take an image that is built for this machine"}
	case cause.ImageRateLimited:
		p.cause(why.Kind, c, "the registry %s answers %s: it was asked too often", host, cmp.Or(answer, "429 Too Many Requests"))
		return []string{"wait, or " + login}
	case cause.ImageUnauthorized:
		p.cause(why.Kind, c, "the registry %s answers %s: it wants a login, or has no such image and does not say so", host, cmp.Or(answer, "401 Unauthorized"))
		return []string{again + ", if the name is wrong", login}
	case cause.ImageForbidden:
		p.cause(why.Kind, c, "the registry %s answers %s: this login may not have it", host, cmp.Or(answer, "403 Forbidden"))
		return []string{login, again + ", if the name is wrong"}
	case cause.RegistryCertificate:
		p.cause(why.Kind, c, "the certificate of the registry %s is not trusted: %s", host, detail)
		return []string{"put the registry's CA as ca.crt into /etc/monopod/certs.d/" + host + " (registryHostsDirs" + inFile(p.Places.Config) + "); look at the clock too (date)"}
	case cause.RegistryNotTLS:
		p.cause(why.Kind, c, "the registry %s speaks plain HTTP, which is only used to this machine itself", host)
		return []string{"give the registry a certificate, or allow http to it by a hosts.toml in /etc/monopod/certs.d/" + host, p.offline()}
	case cause.RegistryUnknown:
		p.cause(why.Kind, c, "the name %s of the registry cannot be looked up: %s", why.Server, detail)
		return []string{again + ", if the registry's name is wrong", "look at the network and DNS of this machine (/etc/resolv.conf)", p.offline()}
	case cause.RegistryUnreachable:
		where := host
		if why.Server != "" {
			where += " (" + why.Server + ")"
		}
		p.cause(why.Kind, c, "the registry %s does not answer: %s", where, detail)
		return []string{"look whether the registry runs and can be reached from this machine", again + ", if the address is wrong", p.offline()}
	case cause.NoSpace:
		p.cause(why.Kind, c, "the disk is full: %s", detail)
		return []string{"make room on the disk (df -h shows where)"}
	case cause.ImageStalled:
		p.cause(why.Kind, c, "the registry %s sent nothing for 5 minutes", host)
		return []string{"look at the network of this machine"}
	case cause.ImageNotFound:
		p.cause(why.Kind, c, "the registry %s answers %s: it has no such image or tag", host, cmp.Or(answer, "404 Not Found"))
		return []string{again + ": the name or the tag is wrong, or was never pushed"}
	case cause.RegistryError:
		p.cause(why.Kind, c, "the registry %s answers %s", host, answer)
		return []string{"ask who runs the registry, if it does not pass"}
	}
	p.cause(cause.ImagePull, c, "%s", detail)
	return []string{again + ", or what the message names"}
}
