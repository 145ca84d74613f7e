package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"monopod/internal/cause"
	"monopod/manifests/explain"
)

// missing is about an object that does not exist, or a claim without a volume, and reports whether the cause is one of those.
func (b *builder) missing() bool {
	switch c := b.Trouble.Cause; c.Kind {
	case cause.MissingConfigMap, cause.MissingSecret, cause.MissingClaim:
		b.missingObject(c.Kind, c.Object.Kind, c.Object.Name)
	case cause.MissingKey:
		b.missingKey(c.Object.Kind, c.Object.Name, c.Key)
	case cause.ClaimUnbound:
		b.cause(c.Kind, c.Container, "a claim of the pod has no volume: %s", oneLine(c.Detail))
		b.retried("it is tried again")
		if c.Fault == cause.Unmountable {
			b.act("mount that volume on the host, and use hostPath in the PersistentVolume")
			b.act("or remove the PersistentVolume, and volumeName from the claim: the claim gets a directory then")
			return true
		}
		b.act("define the volume or StorageClass that the message names, or correct the claim")
	default:
		return false
	}
	return true
}

func (b *builder) missingObject(reason cause.Kind, kind, name string) {
	ns := b.Object.Namespace
	b.cause(reason, b.Trouble.Container, "%s uses the %s %s, which no source defines in namespace %s", b.user(b.Trouble.Container), kind, name, ns)
	var same []string
	advice := fmt.Sprintf("add a %s named %s in namespace %s to %s (a file of its own is fine)", kind, name, ns, cmp.Or(b.Places.Manifests, "a source"))
	for _, o := range b.Objects {
		switch {
		case o.Kind != kind:
		case o.Name == name:
			b.cause(reason, b.Trouble.Container, "there is a %s of that name in namespace %s (%s), but a pod only sees those of its own namespace", kind, o.Namespace, o.Where)
			advice = fmt.Sprintf("write namespace: %s in %s, or the pod into namespace %s", ns, o.Where, o.Namespace)
		case o.Namespace == ns:
			same = append(same, o.Name)
		}
	}
	for _, o := range b.Named {
		if o.Kind == kind && o.Name == name {
			b.cause(cause.InputRefused, b.Trouble.Container, "%s defines it, but was refused", o.Where)
			advice = "correct " + fileOf(o.Where) + "; `monopod why` shows what is wrong with it"
		}
	}
	b.missingNext(kind)
	if guess := explain.Nearest(name, same); guess != "" {
		b.act("did you mean %s? Then correct the name in %s", guess, b.place())
	}
	b.act("%s", advice)
}

func (b *builder) missingKey(kind, name, key string) {
	o := b.find(kind, name)
	where := ""
	if o != nil {
		where = " (" + o.Where + ")"
	}
	b.cause(cause.MissingKey, b.Trouble.Container, "%s uses the key %s of %s %s, which has no such key%s", b.user(b.Trouble.Container), key, kind, name, where)
	b.missingNext(kind)
	if o == nil {
		b.act("add the key, or correct its name in %s", b.place())
		return
	}
	if guess := explain.Nearest(key, o.Keys); guess != "" {
		b.act("did you mean %s? Then correct the key in %s", guess, b.place())
	}
	b.act("add the key to %s, which has %s", o.Where, cmp.Or(strings.Join(slices.Sorted(slices.Values(o.Keys)), ", "), "none"))
}

func (b *builder) missingNext(kind string) {
	b.next(time.Time{}, "it starts as soon as a source defines the %s", kind)
}

func (b *builder) find(kind, name string) *Object {
	for i := range b.Objects {
		if o := &b.Objects[i]; o.Kind == kind && o.Name == name && o.Namespace == b.Object.Namespace {
			return o
		}
	}
	return nil
}

// user is who needs something.
func (b *builder) user(container string) string {
	if container == "" {
		return "the pod"
	}
	return "container " + container
}

// fileOf is a place without its line.
func fileOf(where string) string { return (&Pod{Where: where}).file() }
