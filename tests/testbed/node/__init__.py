"""A real single-node Kubernetes: containerd, kubelet, controllers, proxy and DNS in namespaces.

Everything that runs is in mount, PID, network, UTS and IPC namespaces of its own, and ends with
their process 1, which the kernel kills when the testbed dies. What the kernel does not remove by
itself (control groups, the run's folder) a small process outside removes, however the run ends.
Images stay in the cache, in containerd's own folder, so that each is imported once.

- :mod:`~tests.testbed.node.machine`: the namespaces, and what runs in them.
- :mod:`~tests.testbed.node.settings`: keys, kubeconfigs and settings.
- :mod:`~tests.testbed.node.images`: the images, from root folders.
- :mod:`~tests.testbed.node.volumes`: a local volume for each claim.
- :mod:`~tests.testbed.node.node`: all of it, and what tests ask it.
"""
