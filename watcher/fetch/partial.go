package fetch

import (
	"strings"

	"monopod/manifests"
)

// partly is the accepted content after an answer that is not valid as a whole.
type partly struct {
	content manifests.Content
	// held is set if some of the content comes from earlier answers.
	held bool
	// whole is set if content lacks nothing that an earlier answer had.
	whole bool
}

// acceptPartly accepts an answer object by object. was is the accepted content so far, now the valid part of the answer, and problems are
// the errors of the rest. An object with a problem keeps its earlier content. While the identity of a document is unknown, every object
// that the answer lacks may be that one, and stays; the same holds if the answer may have been cut off.
func acceptPartly(was, now *manifests.Content, problems []*manifests.Error) partly {
	there, end := identities(now), lastLine(now)
	blamed, nameless := map[manifests.ObjectID]bool{}, false
	for _, e := range problems {
		id, ok := e.ID()
		blamed[id] = true
		cutOff := e.Line > end && !there[id]
		nameless = nameless || !ok || cutOff || misnamed(e)
	}
	keep := keeper{blamed: blamed, nameless: nameless, there: there}
	pods, heldPods := keepers(keep, was.Pods, now.Pods, podID)
	objects, heldObjects := keepers(keep, was.Objects, now.Objects, (*manifests.Object).ID)
	workloads, heldWorkloads := keepers(keep, was.Workloads, now.Workloads, (*manifests.Object).ID)
	out := partly{
		content: manifests.Content{Pods: pods, Objects: objects, Workloads: workloads, Notes: now.Notes, Ignored: now.Ignored},
		held:    heldPods || heldObjects || heldWorkloads,
		whole:   !nameless,
	}
	known := identities(was)
	for id := range blamed {
		out.whole = out.whole && known[id]
	}
	return out
}

// misnamed reports whether the error is in the name, so that another object may be meant.
func misnamed(e *manifests.Error) bool {
	return strings.HasSuffix(e.Field, "metadata.name") || strings.HasSuffix(e.Field, "metadata.namespace")
}

// lastLine is where the last object begins.
func lastLine(c *manifests.Content) int {
	last := 0
	for _, p := range c.Pods {
		last = max(last, p.Origin.Line)
	}
	for _, list := range [][]*manifests.Object{c.Objects, c.Workloads} {
		for _, o := range list {
			last = max(last, o.Origin.Line)
		}
	}
	return last
}

func podID(p *manifests.Pod) manifests.ObjectID {
	return manifests.ObjectID{Kind: "Pod", Namespace: p.Object.Namespace, Name: p.Object.Name}
}

func identities(c *manifests.Content) map[manifests.ObjectID]bool {
	ids := make(map[manifests.ObjectID]bool, len(c.Pods)+len(c.Objects)+len(c.Workloads))
	for _, p := range c.Pods {
		ids[podID(p)] = true
	}
	for _, list := range [][]*manifests.Object{c.Objects, c.Workloads} {
		for _, o := range list {
			ids[o.ID()] = true
		}
	}
	return ids
}

// keeper knows which objects keep their earlier content: there are those that the answer has.
type keeper struct {
	blamed, there map[manifests.ObjectID]bool
	nameless      bool
}

func (k keeper) holds(id manifests.ObjectID) bool { return k.blamed[id] || k.nameless && !k.there[id] }

// keepers returns what counts, and whether anything of it is held: in the order of now, and each that is held behind the
// one it was behind before.
func keepers[T any](k keeper, was, now []T, id func(T) manifests.ObjectID) (all []T, held bool) {
	behind := map[manifests.ObjectID][]T{}
	var last manifests.ObjectID
	for _, x := range was {
		switch i := id(x); {
		case k.holds(i):
			behind[last] = append(behind[last], x)
			held = true
		case k.there[i]:
			last = i
		}
	}
	all = append(all, behind[manifests.ObjectID{}]...)
	for _, x := range now {
		if i := id(x); !k.blamed[i] {
			all = append(append(all, x), behind[i]...)
		}
	}
	return all, held
}
