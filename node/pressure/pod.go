package pressure

import (
	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/node/stats"
)

// NewPod returns a pod of the local space or of another with what it uses. The disk counts as unused where u has no measurement of it.
func NewPod(pod *corev1.Pod, u *stats.Pod, local bool) Pod {
	p := Pod{
		Key: manifests.Key{Namespace: pod.Namespace, Name: pod.Name}, UID: u.UID, Pod: pod, Priority: manifests.PriorityOf(&manifests.Pod{Object: pod}),
		Use:        Use{Memory: int64(u.Memory.WorkingSet), PIDs: int64(u.Pids.Current)},
		Containers: map[string]Use{},
		Leaving:    pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed, Local: local,
	}
	for i := range u.Containers {
		c := &u.Containers[i]
		p.Containers[c.Name] = Use{Memory: int64(c.Memory.WorkingSet), PIDs: int64(c.Pids.Current)}
	}
	if u.Disk == nil {
		return p
	}
	total := u.Disk.Total()
	p.Use.Disk, p.Use.Inodes = int64(total.Bytes), int64(total.Inodes)
	for _, part := range []map[string]stats.DiskUse{u.Disk.Layers, u.Disk.Logs} {
		for name, d := range part {
			c := p.Containers[name]
			c.Disk, c.Inodes = c.Disk+int64(d.Bytes), c.Inodes+int64(d.Inodes)
			p.Containers[name] = c
		}
	}
	return p
}
