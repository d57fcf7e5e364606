"""Writes each push as a record to a Kafka topic, of this or another cluster.

It imports confluent-kafka when the plugin is constructed, so that a receiver without that package
can run its other plugins.
"""

from plugins.kafka_topic.config import KafkaTopicConfig
from plugins.kafka_topic.receiver import KafkaTopicReceiver

__all__ = ["KafkaTopicConfig", "KafkaTopicReceiver"]
