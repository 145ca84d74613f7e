package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"monopod/internal/cause"
	"monopod/manifests/explain"
	"monopod/manifests/spaces"
)

// missingObject explains that an object of the manifests does not exist, or lacks a key.
type missingObject struct{ *builder }

// explain reports whether the cause is a missing object or key, or a claim without a volume.
func (m *missingObject) explain() bool {
	switch c := m.Trouble.Cause; c.Kind {
	case cause.MissingConfigMap, cause.MissingSecret, cause.MissingClaim:
		m.object(c.Kind, c.Object.Kind, c.Object.Name)
	case cause.NotShared:
		m.cause(c.Kind, m.Trouble.Container, "%s uses %s %s, which source %s defines and source %s must not use", m.user(m.Trouble.Container), c.Object.Kind, c.Object.Name, c.Owner, c.Reader)
		m.act("if pods of %s may use it, write sharing: {%s: [%s]} into %s and restart monopod", c.Reader, c.Reader, spaces.Entry(c.Owner, c.Object.Namespace), cmp.Or(m.Places.Config, "the configuration"))
	case cause.MissingKey:
		m.lacksKey(c.Object.Kind, c.Object.Name, c.Key)
	case cause.ClaimUnbound:
		m.cause(c.Kind, c.Container, "a claim of the pod has no volume: %s", oneLine(c.Detail))
		m.retried("retry")
		switch c.Fault {
		case cause.Unmountable:
			m.act("mount that volume on the host, and use hostPath in the PersistentVolume")
			m.act("or remove the PersistentVolume, and volumeName from the claim, which then gets a directory")
		case cause.Owned:
			m.act("rename the claim, or define it in source %s", c.Owner)
			if c.Path != "" {
				m.act("or remove %s if its data is not needed", c.Path)
			}
		default:
			m.act("define the volume or StorageClass in the message, or correct the claim")
		}
	default:
		return false
	}
	return true
}

func (m *missingObject) object(reason cause.Kind, kind, name string) {
	ns := m.Object.Namespace
	m.cause(reason, m.Trouble.Container, "%s uses %s %s, which no source defines in namespace %s", m.user(m.Trouble.Container), kind, name, ns)
	var same []string
	advice := fmt.Sprintf("add a %s named %s in namespace %s to %s (a file of its own is fine)", kind, name, ns, cmp.Or(m.Places.Manifests, "a source"))
	for _, o := range m.Objects {
		switch {
		case o.Kind != kind:
		case o.Name == name:
			m.cause(reason, m.Trouble.Container, "a %s of that name exists in namespace %s (%s), but a pod can only use those in its own namespace", kind, o.Namespace, o.Where)
			advice = fmt.Sprintf("set namespace: %s in %s, or move the pod to namespace %s", ns, o.Where, o.Namespace)
		case o.Namespace == ns:
			same = append(same, o.Name)
		}
	}
	for _, o := range m.Named {
		if o.Kind == kind && o.Name == name {
			m.cause(cause.InputRefused, m.Trouble.Container, "%s defines it, but was refused", o.Where)
			advice = "correct " + fileOf(o.Where) + "; `monopod why` lists its errors"
		}
	}
	m.next(time.Time{}, "it starts as soon as a source defines the %s", kind)
	if guess := explain.Nearest(name, same); guess != "" {
		m.act("did you mean %s? Correct the name in %s", guess, m.place())
	}
	m.act("%s", advice)
}

func (m *missingObject) lacksKey(kind, name, key string) {
	i := slices.IndexFunc(m.Objects, func(o Object) bool { return o.Kind == kind && o.Name == name && o.Namespace == m.Object.Namespace })
	where := ""
	if i >= 0 {
		where = " (" + m.Objects[i].Where + ")"
	}
	m.cause(cause.MissingKey, m.Trouble.Container, "%s uses key %s of %s %s, which has no such key%s", m.user(m.Trouble.Container), key, kind, name, where)
	m.next(time.Time{}, "it starts as soon as a source defines the %s", kind)
	if i < 0 {
		m.act("add the key, or correct its name in %s", m.place())
		return
	}
	o := &m.Objects[i]
	if guess := explain.Nearest(key, o.Keys); guess != "" {
		m.act("did you mean %s? Correct the key in %s", guess, m.place())
	}
	m.act("add the key to %s (existing keys: %s)", o.Where, cmp.Or(strings.Join(slices.Sorted(slices.Values(o.Keys)), ", "), "none"))
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
