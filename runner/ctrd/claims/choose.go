// Package claims decides which storage a PersistentVolumeClaim gets, and stores the decision. It must not know how storage is
// mounted, or which pods use it.
//
// Choose is pure and follows the binding rules of Kubernetes: a volume is bound to one claim, a claim to the smallest volume that
// satisfies it, or else it gets a directory of its own. Book stores decisions in a file. No goroutines.
package claims

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"monopod/internal/cause"
	"monopod/internal/sharing"
	"monopod/manifests"
)

// Request is a claim that needs storage, with all objects that matter.
type Request struct {
	// Claim may lack its defaults: the claims of a StatefulSet are generated, not decoded.
	Claim *corev1.PersistentVolumeClaim
	// Refs holds the volumes and classes.
	Refs *manifests.Refs
	// NodeName is that of this machine.
	NodeName string
	// Taken has the claims of volumes: namespace/name by the name of the volume.
	Taken map[string]string
}

// Key returns the key of a claim.
func Key(c *corev1.PersistentVolumeClaim) string { return c.Namespace + "/" + c.Name }

// Choose returns the name of the PersistentVolume for an unbound claim, or "" if it gets a new directory. The error is what the
// claim waits for.
func Choose(q Request) (string, error) {
	if name := q.Claim.Spec.VolumeName; name != "" {
		if err := q.fits(name); err != nil {
			return "", err
		}
		return name, nil
	}
	if v := q.reserved(); v != nil && !manifests.Mountable(v) {
		return "", cannotMount(fmt.Errorf("PersistentVolume %q, which names the claim, does not fit: %s", v.Name, unmountable))
	} else if v != nil {
		return v.Name, nil
	}
	if v := q.smallest(); v != nil {
		return v.Name, nil
	}
	return "", q.provisionable()
}

// fits returns an error unless the claim may have the PersistentVolume that it names.
func (q Request) fits(name string) error {
	v := q.volume(name)
	if v == nil {
		return cmp.Or(q.notShared(name), fmt.Errorf("PersistentVolume %q, which the claim names, does not exist", name))
	}
	if owner := q.owner(v); owner != "" && owner != Key(q.Claim) {
		return fmt.Errorf("PersistentVolume %q, which the claim names, belongs to claim %s", name, owner)
	}
	if why := q.mismatch(v); why != "" {
		err := fmt.Errorf("PersistentVolume %q, which the claim names, does not fit: %s", name, why)
		if !manifests.Mountable(v) {
			err = cannotMount(err)
		}
		return err
	}
	return nil
}

// cannotMount adds to an error that the claim's volume is of a kind that cannot be mounted here.
func cannotMount(err error) error {
	return cause.Wrap(err, cause.Cause{Kind: cause.ClaimUnbound, Fault: cause.Unmountable})
}

// explicit returns the volume that the objects give to the claim, whatever was decided before; empty: none.
func (q Request) explicit() string {
	if q.Claim.Spec.VolumeName != "" {
		return q.Claim.Spec.VolumeName
	}
	if v := q.reserved(); v != nil {
		return v.Name
	}
	return ""
}

// Unmountable returns the volume that the objects give to the claim if its type cannot be mounted here; else "".
func (q Request) Unmountable() string {
	if v := q.volume(q.explicit()); v != nil && !manifests.Mountable(v) {
		return v.Name
	}
	return ""
}

func (q Request) volume(name string) *corev1.PersistentVolume {
	for _, v := range q.Refs.Volumes {
		if v.Name == name {
			return v
		}
	}
	return nil
}

// notShared returns an error if a volume exists in another space.
func (q Request) notShared(volume string) error {
	return sharing.Refused(q.Refs, manifests.ObjectID{Kind: "PersistentVolume", Name: volume})
}

// owner returns the claim that a volume belongs to: the one that it names, else the one that has it, else one that names it.
func (q Request) owner(v *corev1.PersistentVolume) string {
	return cmp.Or(claimRef(v), q.Taken[v.Name], q.Refs.Named[v.Name])
}

// claimRef returns the claim that a volume names.
func claimRef(v *corev1.PersistentVolume) string {
	ref := v.Spec.ClaimRef
	if ref == nil || ref.Name == "" {
		return ""
	}
	return cmp.Or(ref.Namespace, corev1.NamespaceDefault) + "/" + ref.Name
}

// reserved returns a volume that names the claim and is large enough, preferably one that can be mounted here.
func (q Request) reserved() *corev1.PersistentVolume {
	var unmountable *corev1.PersistentVolume
	for _, v := range q.Refs.Volumes {
		switch {
		case claimRef(v) != Key(q.Claim) || !sameMode(v, q.Claim) || size(v) < q.request() || q.elsewhere(v) != "":
		case manifests.Mountable(v):
			return v
		case unmountable == nil:
			unmountable = v
		}
	}
	return unmountable
}

// smallest returns the smallest free volume that satisfies the claim; of several the first by name.
func (q Request) smallest() *corev1.PersistentVolume {
	var best *corev1.PersistentVolume
	for _, v := range q.Refs.Volumes {
		if q.owner(v) != "" || q.mismatch(v) != "" {
			continue
		}
		if best == nil || cmp.Or(cmp.Compare(size(v), size(best)), cmp.Compare(v.Name, best.Name)) < 0 {
			best = v
		}
	}
	return best
}

// unmountable is the error for volumes of CSI drivers and clouds.
const unmountable = "its type cannot be mounted here; hostPath, local, nfs and iscsi can"

// mismatch returns what the claim requires and a volume lacks.
func (q Request) mismatch(v *corev1.PersistentVolume) string {
	c := q.Claim
	class, _ := q.class()
	switch {
	case !manifests.Mountable(v):
		return unmountable
	case size(v) < q.request():
		return fmt.Sprintf("it has %s", v.Spec.Capacity.Storage())
	case !sameMode(v, c):
		return fmt.Sprintf("its volumeMode is %s", volumeMode(v.Spec.VolumeMode))
	case manifests.VolumeClass(v) != class:
		return fmt.Sprintf("its storageClassName is %q", manifests.VolumeClass(v))
	case !selects(c.Spec.Selector, v.Labels):
		return "the claim's selector does not match it"
	}
	for _, m := range c.Spec.AccessModes {
		if !slices.Contains(v.Spec.AccessModes, m) {
			return fmt.Sprintf("it has no access mode %s", m)
		}
	}
	return q.elsewhere(v)
}

// class returns the class of the claim, and whether the claim names it. A claim without a class gets the default class, if there
// is one.
func (q Request) class() (name string, named bool) {
	if class := manifests.ClaimClass(q.Claim); class != nil {
		return *class, true
	}
	for _, s := range q.Refs.Classes {
		if s.IsDefault() {
			return s.Name, false
		}
	}
	return "", false
}

// storageClass returns the object of the claim's class, or nil.
func (q Request) storageClass() *manifests.StorageClass {
	name, _ := q.class()
	for _, s := range q.Refs.Classes {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// provisionable returns why no directory can be created for the claim; nil if it can.
func (q Request) provisionable() error {
	name, named := q.class()
	none := func(why string) error {
		text := "no PersistentVolume fits"
		if closest := q.closest(); closest != "" {
			text += " (" + closest + ")"
		}
		return fmt.Errorf("%s, and none is created: %s", text, why)
	}
	doc := q.storageClass()
	switch {
	case volumeMode(q.Claim.Spec.VolumeMode) == corev1.PersistentVolumeBlock:
		return none("block devices are not created here")
	case q.Claim.Spec.Selector != nil:
		return none("the claim has a selector")
	case named && name == "":
		return none(`storageClassName "" requires an existing PersistentVolume`)
	case doc != nil && doc.Provisioner == manifests.NoProvisioner:
		return none(fmt.Sprintf("StorageClass %q has no provisioner", name))
	case doc == nil && name != "" && slices.ContainsFunc(q.Refs.Volumes, func(v *corev1.PersistentVolume) bool {
		return manifests.Mountable(v) && manifests.VolumeClass(v) == name
	}):
		return none(fmt.Sprintf("class %q only has existing PersistentVolumes", name))
	}
	return nil
}

// closest returns why a volume of the claim's class does not satisfy the claim.
func (q Request) closest() string {
	class, _ := q.class()
	for _, v := range q.Refs.Volumes {
		if manifests.VolumeClass(v) != class {
			continue
		}
		if owner := q.owner(v); owner != "" {
			return fmt.Sprintf("%s belongs to claim %s", v.Name, owner)
		}
		return fmt.Sprintf("%s: %s", v.Name, q.mismatch(v))
	}
	return ""
}

// reclaims reports whether the directory of the claim is deleted with the object.
func (q Request) reclaims() bool {
	s := q.storageClass()
	return q.Claim.Annotations[manifests.AnnotationRetain] == "" && s != nil && s.ReclaimPolicy != nil && *s.ReclaimPolicy == corev1.PersistentVolumeReclaimDelete
}

func size(v *corev1.PersistentVolume) int64 { return v.Spec.Capacity.Storage().Value() }

func (q Request) request() int64 { return q.Claim.Spec.Resources.Requests.Storage().Value() }

func sameMode(v *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) bool {
	return volumeMode(v.Spec.VolumeMode) == volumeMode(c.Spec.VolumeMode)
}

func volumeMode(m *corev1.PersistentVolumeMode) corev1.PersistentVolumeMode {
	if m == nil {
		return corev1.PersistentVolumeFilesystem
	}
	return *m
}

// IsBlock reports whether a claim is for a device instead of a file system.
func IsBlock(c *corev1.PersistentVolumeClaim) bool {
	return volumeMode(c.Spec.VolumeMode) == corev1.PersistentVolumeBlock
}

func selects(selector *metav1.LabelSelector, have map[string]string) bool {
	if selector == nil {
		return true
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(labels.Set(have))
}

// elsewhere returns the node that a volume is restricted to; empty: it may be used here.
func (q Request) elsewhere(v *corev1.PersistentVolume) string {
	a := v.Spec.NodeAffinity
	if a == nil || a.Required == nil {
		return ""
	}
	if slices.ContainsFunc(a.Required.NodeSelectorTerms, q.satisfies) {
		return ""
	}
	return fmt.Sprintf("its nodeAffinity is not for this node, %s", q.NodeName)
}

// satisfies reports whether this node matches a term. Only labels that every node has are known; requirements of other labels
// count as met, because the object was put on this machine on purpose.
func (q Request) satisfies(term corev1.NodeSelectorTerm) bool {
	known := map[string]string{
		corev1.LabelHostname: q.NodeName, corev1.LabelOSStable: "linux", corev1.LabelArchStable: runtime.GOARCH,
		"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": runtime.GOARCH,
	}
	for _, r := range term.MatchExpressions {
		if value, ok := known[r.Key]; ok && !meets(r, value) {
			return false
		}
	}
	for _, r := range term.MatchFields {
		if r.Key == metav1.ObjectNameField && !meets(r, q.NodeName) {
			return false
		}
	}
	return len(term.MatchExpressions)+len(term.MatchFields) > 0
}

// meets compares the value of a label of the node.
func meets(r corev1.NodeSelectorRequirement, value string) bool {
	switch r.Operator {
	case corev1.NodeSelectorOpIn:
		return slices.Contains(r.Values, value)
	case corev1.NodeSelectorOpNotIn:
		return !slices.Contains(r.Values, value)
	case corev1.NodeSelectorOpExists:
		return true
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		have, err := strconv.ParseInt(value, 10, 64)
		if err != nil || len(r.Values) != 1 {
			return false
		}
		want, err := strconv.ParseInt(r.Values[0], 10, 64)
		return err == nil && (r.Operator == corev1.NodeSelectorOpGt && have > want || r.Operator == corev1.NodeSelectorOpLt && have < want)
	}
	return false // DoesNotExist
}
