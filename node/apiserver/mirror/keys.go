package mirror

import (
	"encoding/json"
	"hash/fnv"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Mirror is what planning needs to know about a pod on the server.
type Mirror struct {
	UID     types.UID
	Version string
	// Hash is of what it was made from, empty when it is no mirror of ours.
	Hash string
	// Other reports that it is no mirror pod at all.
	Other bool
	// Owner is the uid of the Node that it belongs to.
	Owner types.UID
	// Leaving reports that it is being deleted, Edited that its spec has been changed since its creation.
	Leaving, Edited bool
	// Digest is of its status without conditions.
	Digest     string
	Conditions []corev1.PodCondition
}

// Digest is the same for what an API server shows as the same: all of a status but its conditions and what it sets itself.
func Digest(s *corev1.PodStatus) string {
	plain := *s
	plain.Conditions, plain.QOSClass = nil, ""
	return hashOf(&plain)
}

// hashOf is of the JSON of a value, in which times are as precise as they are over there.
func hashOf(v any) string {
	h := fnv.New64a()
	_ = json.NewEncoder(h).Encode(v) // types of the API always encode
	return strconv.FormatUint(h.Sum64(), 36)
}

// Of is what matters of a pod on the server.
func Of(p *corev1.Pod) Mirror {
	_, isMirror := p.Annotations[corev1.MirrorPodAnnotationKey]
	m := Mirror{
		UID: p.UID, Version: p.ResourceVersion, Hash: p.Annotations[AnnotationContent], Other: !isMirror,
		Leaving: p.DeletionTimestamp != nil, Edited: p.Generation > 1, // servers before 1.33 do not count
		Digest: Digest(&p.Status), Conditions: p.Status.Conditions,
	}
	if len(p.OwnerReferences) == 1 {
		m.Owner = p.OwnerReferences[0].UID
	}
	return m
}
