package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
)

// isImage reports whether what failed is getting an image.
func isImage(kind cause.Kind) bool {
	switch kind {
	case cause.ImagePull, cause.ImageNeverPull, cause.ImageName, cause.ImageBroken, cause.ImageArtifact, cause.ImageUnsigned, cause.ImageNotAllowed:
		return true
	}
	return false
}

// imagePull explains why the image of a container cannot be pulled or used.
type imagePull struct {
	*builder
	// container is empty for an image of the pod itself.
	container string
	// ref is the image. field and policyField are where the manifest has it and its pull policy, which is policy.
	ref, field, policyField string
	policy                  corev1.PullPolicy
}

func explainImage(b *builder) {
	p := &imagePull{builder: b, container: b.Trouble.Container, ref: cmp.Or(b.Trouble.Cause.Image, "of the pod")}
	path := b.field(b.Trouble.Container)
	p.field, p.policyField = path+".image", path+".imagePullPolicy"
	if spec := b.spec(p.container); spec != nil {
		p.ref, p.policy = cmp.Or(b.Trouble.Cause.Image, spec.Image), spec.ImagePullPolicy
	}
	for i := range b.Object.Spec.Volumes {
		if v := &b.Object.Spec.Volumes[i]; v.Name == b.Trouble.Cause.Volume && v.Image != nil {
			path = fmt.Sprintf("spec.volumes[%d].image", i)
			p.field, p.policyField, p.policy = path+".reference", path+".pullPolicy", v.Image.PullPolicy
		}
	}
	p.explain()
}

func (p *imagePull) explain() {
	t := p.Trouble
	c := t.Cause
	ref, detail, of := p.ref, oneLine(c.Detail), ""
	if c.Volume != "" {
		of = " of volume " + c.Volume
	}
	verb := "pulled"
	if c.Kind == cause.ImageArtifact {
		verb = "used"
	}
	p.cause(cause.ImagePull, t.Container, "%s image %s%s cannot be %s", p.whose(), ref, of, verb)
	if c.Mirror != "" {
		p.cause(cause.ImagePull, t.Container, "mirror %s of registry %s sent content that cannot be used, so that the registry itself was asked", c.Mirror, c.Registry)
	}
	switch {
	case c.Kind == cause.NoSpace && c.Fault == cause.Reserved:
		p.cause(c.Kind, t.Container, "%s", detail)
		p.act("free disk space (see df -h; monopod images rm IMAGE removes an image), or lower evictionHard%s, which pulls keep free", inFile(p.Places.Config))
	case c.Kind == cause.ImageNeverPull:
		p.cause(c.Kind, t.Container, "it is not present on this machine, and its pull policy is Never")
		p.act("%sset %s: IfNotPresent in %s", p.preload(), p.policyField, p.place())
	case c.Kind == cause.ImageName:
		p.cause(c.Kind, t.Container, "invalid image name: %s", detail)
		p.act("correct %s in %s, such as registry.example.com/app:1.2", p.field, p.place())
	case c.Kind == cause.ImageNotAllowed:
		p.cause(c.Kind, t.Container, "%s", detail)
		p.act("correct %s in %s, or add a rule for it to imagePolicy%s and restart monopod", p.field, p.place(), inFile(p.Places.Config))
	case c.Kind == cause.ImageUnsigned:
		p.cause(c.Kind, t.Container, "imagePolicy requires a signature by one of its keys: %s", detail)
		p.act("sign it: cosign sign --key KEY %s; or correct the keys of its rule in imagePolicy%s", ref, inFile(p.Places.Config))
	case c.Kind == cause.ImageArtifact:
		p.cause(c.Kind, t.Container, "it is an OCI artifact, not an image: it has files, but no file system that a container can run or mount")
		p.act("correct %s in %s, or build an image with those files (FROM scratch, COPY)", p.field, p.place())
	case c.Kind == cause.ImageBroken:
		p.cause(c.Kind, t.Container, "its local data is damaged: %s", detail)
		if p.policy == corev1.PullNever { // once it is removed, nothing would bring it back
			p.act("%sset %s: IfNotPresent in %s", p.preload(), p.policyField, p.place())
		}
		p.act("remove the image to have it pulled again: monopod images rm --force %s", ref)
	default:
		advice := p.registryCause(c, detail)
		if offline := p.offline(); p.asksAlways() && !slices.Contains(advice, offline) {
			advice = append(advice, offline)
		}
		if c.Mirror != "" {
			advice = append(advice, "correct mirror "+c.Mirror+", or remove it from the hosts.toml of the registry (registryHostsDirs"+inFile(p.Places.Config)+")")
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
		return "container " + container + " is not updated, the old one continues:"
	}
	return "container " + container + " does not start:"
}

// imageNext puts what happens next before what can be done.
func (p *imagePull) imageNext() {
	at := slices.IndexFunc(p.chain.Steps, func(s Step) bool { return s.Kind == Action })
	p.retried("retry")
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
	return p.policy == corev1.PullAlways
}

// offline is the advice to do without a registry, as a sentence of its own; empty: there is none. With the policy Always the registry is asked also about
// an image that is here.
func (p *imagePull) offline() string {
	put := strings.TrimSuffix(p.preload(), ", or ")
	if !p.asksAlways() {
		return put
	}
	always := "set " + p.policyField + ": IfNotPresent in " + p.place() + ": Always contacts the registry even if the image is present"
	if put == "" {
		return always
	}
	return always + "; if it is missing, " + put
}

// registryCause adds what the registry answered, or why it did not, and returns what to do.
func (p *imagePull) registryCause(why cause.Cause, detail string) []string {
	c, host, answer := p.container, why.Registry, why.Answer
	again := "correct " + p.field + " in " + p.place()
	login := "log in: docker login " + host + " writes a config.json; set registryConfig" + inFile(p.Places.Config) + " to it, or add imagePullSecrets to the pod"
	if p.Places.Logins != "" {
		login = "add a login for " + host + " to " + p.Places.Logins + ", or imagePullSecrets to the pod"
	}
	switch why.Kind {
	case cause.ImagePlatform:
		p.cause(why.Kind, c, "registry %s has the image, but not for the processor of this machine", host)
		return []string{again + ": use an image that is built for this machine"}
	case cause.ImageRateLimited:
		p.cause(why.Kind, c, "registry %s answered %s: too many requests", host, cmp.Or(answer, "429 Too Many Requests"))
		return []string{"wait, or " + login}
	case cause.ImageUnauthorized:
		p.cause(why.Kind, c, "registry %s answered %s: a login is required, or the image does not exist", host, cmp.Or(answer, "401 Unauthorized"))
		return []string{again + ", if the name is wrong", login}
	case cause.ImageForbidden:
		p.cause(why.Kind, c, "registry %s answered %s: this login may not pull the image", host, cmp.Or(answer, "403 Forbidden"))
		return []string{login, again + ", if the name is wrong"}
	case cause.RegistryCertificate:
		p.cause(why.Kind, c, "the certificate of registry %s is not trusted: %s", host, detail)
		return []string{"put the registry's CA as ca.crt into /etc/monopod/certs.d/" + host + " (registryHostsDirs" + inFile(p.Places.Config) + "); also check the clock (date)"}
	case cause.RegistryNotTLS:
		p.cause(why.Kind, c, "registry %s speaks plain HTTP, which is only allowed on this machine itself", host)
		return []string{"enable TLS on the registry, or allow http to it with a hosts.toml in /etc/monopod/certs.d/" + host, p.offline()}
	case cause.RegistryUnknown, cause.RegistryUnreachable:
		return p.noConnection(why, detail, again)
	case cause.NoSpace:
		p.cause(why.Kind, c, "the disk is full: %s", detail)
		return []string{"free disk space (see df -h)"}
	case cause.ImageStalled:
		p.cause(why.Kind, c, "registry %s sent no data for 5 minutes", host)
		return []string{"check the network of this machine"}
	case cause.ImageNotFound:
		p.cause(why.Kind, c, "registry %s answered %s: no such image or tag", host, cmp.Or(answer, "404 Not Found"))
		return []string{again + ", or push the image"}
	case cause.RegistryError:
		p.cause(why.Kind, c, "registry %s answered %s", host, answer)
		return []string{"contact the operator of the registry if the error persists"}
	}
	p.cause(cause.ImagePull, c, "%s", detail)
	return []string{again + ", or fix the cause in the message"}
}

// noConnection is about a registry to which there is no connection: because of its name, the DNS server, a proxy or itself.
func (p *imagePull) noConnection(why cause.Cause, detail, again string) []string {
	switch {
	case why.Fault == cause.Proxy:
		p.cause(why.Kind, p.container, "registry %s is not reached: the proxy %s does not answer: %s", why.Registry, why.Server, detail)
		return []string{"check that the proxy is running, and HTTPS_PROXY and NO_PROXY in the environment of monopod", p.offline()}
	case why.Fault == cause.Resolver:
		p.cause(why.Kind, p.container, "the DNS server of this machine does not resolve %s: %s", why.Server, detail)
		return []string{"check the network and the DNS servers of this machine (nameserver in /etc/resolv.conf)", p.offline()}
	case why.Kind == cause.RegistryUnknown:
		p.cause(why.Kind, p.container, "registry name %s cannot be resolved: %s", why.Server, detail)
		return []string{again + ", if the registry name is wrong", "check the network and DNS of this machine (/etc/resolv.conf)", p.offline()}
	}
	where := why.Registry
	if why.Server != "" {
		where += " (" + why.Server + ")"
	}
	p.cause(why.Kind, p.container, "registry %s does not answer: %s", where, detail)
	return []string{"check that the registry is running and reachable from this machine", again + ", if the address is wrong", p.offline()}
}
