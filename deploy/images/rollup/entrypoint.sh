#!/bin/bash
# What the roll-up's image runs. Spark on Kubernetes starts its pods with `driver` and `executor` and says the rest in
# variables (its own image is documented in "Running Spark on Kubernetes"). The chart may start spark-submit. Everything
# else is the command kafka-telemetry. None of them is process 1, so a signal ends each at any moment.
set -euo pipefail

# Hadoop's login in Spark needs the name of its user and takes it from nowhere but passwd, which lacks
# the users that OpenShift chooses.
if ! getent passwd "$(id -u)" >/dev/null; then
	NSS_WRAPPER_PASSWD=$(mktemp)
	{ cat /etc/passwd && echo "rollup:x:$(id -u):$(id -g)::$HOME:/usr/sbin/nologin"; } >"$NSS_WRAPPER_PASSWD"
	export NSS_WRAPPER_PASSWD NSS_WRAPPER_GROUP=/etc/group LD_PRELOAD=libnss_wrapper.so
fi

case "${1:-}" in
driver)
	shift
	exec spark-submit --deploy-mode client \
		--conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
		--conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" "$@"
	;;
executor)
	options=()
	# SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1 ... in the order of their numbers.
	while read -r name; do options+=("${!name}"); done < <(compgen -v SPARK_JAVA_OPT_ | sort --version-sort)
	classes=${SPARK_CONF_DIR:+$SPARK_CONF_DIR:}${SPARK_EXTRA_CLASSPATH:+$SPARK_EXTRA_CLASSPATH:}${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}
	exec java "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
		-cp "$classes$SPARK_HOME/jars/*" org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
		--driver-url "$SPARK_DRIVER_URL" \
		--executor-id "$SPARK_EXECUTOR_ID" \
		--cores "$SPARK_EXECUTOR_CORES" \
		--app-id "$SPARK_APPLICATION_ID" \
		--hostname "$SPARK_EXECUTOR_POD_IP" \
		--resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
		--podName "$SPARK_EXECUTOR_POD_NAME"
	;;
spark-submit) exec "$@" ;;
*) exec kafka-telemetry "$@" ;;
esac
