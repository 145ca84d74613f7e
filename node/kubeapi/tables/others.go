package tables

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/internal/units"
	"monopod/node/kubeapi/metricsv1beta1"
	"monopod/node/kubeapi/monopodv1"
)

// volumes adds volumes, claims and their classes.
func volumes(all map[schema.GroupVersionKind]*table) {
	v1 := corev1.SchemeGroupVersion
	all[v1.WithKind("PersistentVolume")] = show(
		"Name,Capacity,Access Modes,Reclaim Policy,Status,Claim,StorageClass,VolumeAttributesClass,Reason,Age,*VolumeMode", volumeRow)
	all[v1.WithKind("PersistentVolumeClaim")] = show(
		"Name,Status,Volume,Capacity,Access Modes,StorageClass,VolumeAttributesClass,Age,*VolumeMode", claimRow)
	all[storagev1.SchemeGroupVersion.WithKind("StorageClass")] = show(
		"Name,Provisioner,ReclaimPolicy,VolumeBindingMode,AllowVolumeExpansion,Age", storageClassRow)
}

func volumeRow(o *corev1.PersistentVolume, now time.Time) []any {
	claim, phase := "", o.Status.Phase
	if r := o.Spec.ClaimRef; r != nil {
		claim = r.Namespace + "/" + r.Name
	}
	if o.DeletionTimestamp != nil {
		phase = "Terminating"
	}
	size := o.Spec.Capacity[corev1.ResourceStorage]
	return []any{
		o.Name, size.String(), accessModes(o.Spec.AccessModes), string(o.Spec.PersistentVolumeReclaimPolicy), string(phase), claim,
		storageClass(o.Annotations, &o.Spec.StorageClassName), text(o.Spec.VolumeAttributesClassName, unset), o.Status.Reason, created(o, now),
		text(o.Spec.VolumeMode, unset),
	}
}

func claimRow(o *corev1.PersistentVolumeClaim, now time.Time) []any {
	phase, capacity, modes := o.Status.Phase, "", ""
	if o.DeletionTimestamp != nil {
		phase = "Terminating"
	}
	if o.Spec.VolumeName != "" {
		size := o.Status.Capacity[corev1.ResourceStorage]
		capacity, modes = size.String(), accessModes(o.Status.AccessModes)
	}
	return []any{
		o.Name, string(phase), o.Spec.VolumeName, capacity, modes, storageClass(o.Annotations, o.Spec.StorageClassName),
		text(o.Spec.VolumeAttributesClassName, unset), created(o, now), text(o.Spec.VolumeMode, unset),
	}
}

// storageClass returns the class, which old manifests name in an annotation.
func storageClass(annotations map[string]string, name *string) string {
	if class, old := annotations[corev1.BetaStorageClassAnnotation]; old {
		return class
	}
	return text(name, "")
}

func storageClassRow(o *storagev1.StorageClass, now time.Time) []any {
	name := o.Name
	for _, mark := range []string{"storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"} {
		if o.Annotations[mark] == "true" {
			name = o.Name + " (default)"
		}
	}
	return []any{
		name, o.Provisioner, text(o.ReclaimPolicy, string(corev1.PersistentVolumeReclaimDelete)),
		text(o.VolumeBindingMode, string(storagev1.VolumeBindingImmediate)), o.AllowVolumeExpansion != nil && *o.AllowVolumeExpansion, created(o, now),
	}
}

// accessModes returns the abbreviated modes in a fixed order.
func accessModes(modes []corev1.PersistentVolumeAccessMode) string {
	var all []string
	for _, m := range []struct {
		mode  corev1.PersistentVolumeAccessMode
		short string
	}{{corev1.ReadWriteOnce, "RWO"}, {corev1.ReadOnlyMany, "ROX"}, {corev1.ReadWriteMany, "RWX"}, {corev1.ReadWriteOncePod, "RWOP"}} {
		if slices.Contains(modes, m.mode) {
			all = append(all, m.short)
		}
	}
	return strings.Join(all, ",")
}

// text returns a value, or missing if it is nil.
func text[T ~string](value *T, missing string) string {
	if value == nil {
		return missing
	}
	return string(*value)
}

// classes adds the classes of pods, and Leases.
func classes(all map[schema.GroupVersionKind]*table) {
	all[schedulingv1.SchemeGroupVersion.WithKind("PriorityClass")] = show("Name,#Value,?Global-Default,Age,PreemptionPolicy",
		func(o *schedulingv1.PriorityClass, now time.Time) []any {
			return []any{o.Name, int64(o.Value), o.GlobalDefault, created(o, now), text(o.PreemptionPolicy, "")}
		})
	all[nodev1.SchemeGroupVersion.WithKind("RuntimeClass")] = show("Name,Handler,Age", func(o *nodev1.RuntimeClass, now time.Time) []any {
		return []any{o.Name, o.Handler, created(o, now)}
	})
	all[coordinationv1.SchemeGroupVersion.WithKind("Lease")] = show("Name,Holder,Age", func(o *coordinationv1.Lease, now time.Time) []any {
		return []any{o.Name, text(o.Spec.HolderIdentity, ""), created(o, now)}
	})
}

// others adds metrics and the kinds of monopod.
func others(all map[schema.GroupVersionKind]*table) {
	metrics, own := metricsv1beta1.SchemeGroupVersion, monopodv1.SchemeGroupVersion
	all[metrics.WithKind("NodeMetrics")] = show("Name,cpu,memory,Window", func(o *metricsv1beta1.NodeMetrics, _ time.Time) []any {
		return []any{o.Name, o.Usage.Cpu().String(), o.Usage.Memory().String(), o.Window.Duration.String()}
	})
	all[metrics.WithKind("PodMetrics")] = show("Name,cpu,memory,Window", func(o *metricsv1beta1.PodMetrics, _ time.Time) []any {
		sum := corev1.ResourceList{}
		for _, c := range o.Containers {
			for name, n := range c.Usage {
				total := sum[name]
				total.Add(n)
				sum[name] = total
			}
		}
		return []any{o.Name, sum.Cpu().String(), sum.Memory().String(), o.Window.Duration.String()}
	})
	all[own.WithKind("Source")] = show("Name,Kind,Location,Verdict,#Pods,Since,#*Objects,*Cause", func(o *monopodv1.Source, now time.Time) []any {
		s := &o.Status
		cause := none
		if len(s.Causes) > 0 {
			cause = place(&s.Causes[0]) + s.Causes[0].Message
		}
		return []any{o.Name, s.Kind, s.Location, s.Verdict, int64(len(s.Pods)), since(s.Since.Time, now), int64(len(s.Objects)), cause}
	})
	all[own.WithKind("Revision")] = show("Name,Pod,#Number,Outcome,?Active,Source,Age", func(o *monopodv1.Revision, now time.Time) []any {
		return []any{o.Name, o.Pod, int64(o.Number), o.Status.Outcome, o.Status.Active, cmp.Or(o.Status.Source, none), created(o, now)}
	})
	all[own.WithKind("Image")] = show("Name,Names,Size,Used By,*Last Used", func(o *monopodv1.Image, now time.Time) []any {
		return []any{o.Name, shorten(o.Names, none), units.Bytes(o.SizeBytes), shorten(o.UsedBy, none), since(o.LastUsed.Time, now)}
	})
	all[own.WithKind("Agent")] = show("Name,Version,Memory,*Shims,Age", func(o *monopodv1.Agent, now time.Time) []any {
		return []any{o.Name, o.Version, units.Bytes(o.ResidentBytes), units.Bytes(o.ShimBytes), created(o, now)}
	})
}

// place returns the location of a cause: LINE:FIELD, as far as known.
func place(c *monopodv1.SourceCause) string {
	text := ""
	if c.Line > 0 {
		text = fmt.Sprintf("line %d: ", c.Line)
	}
	if c.Field != "" {
		text += c.Field + ": "
	}
	return text
}
