package runner

// ReasonEvicted is why a pod fails that uses too much of the disk.
const ReasonEvicted = "Evicted"

// ReasonPreempting is why a pod is stopped to make room for one of a higher priority. It comes back when there is room for it; with a
// kubelet it is gone.
const ReasonPreempting = "Preempting"

// ReasonHostPortConflict is why a pod waits for a host port that another pod, or the machine, has.
const ReasonHostPortConflict = "HostPortConflict"
