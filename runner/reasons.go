package runner

// ReasonEvicted is the reason of a pod that failed because it used too much disk space.
const ReasonEvicted = "Evicted"

// ReasonPreempting is the reason of a pod that is stopped to make room for one of higher priority. Unlike with the kubelet, the pod is
// started again once it fits.
const ReasonPreempting = "Preempting"

// ReasonHostPortConflict is the reason of a pod that waits for a host port in use by another pod or by another process of the machine.
const ReasonHostPortConflict = "HostPortConflict"
