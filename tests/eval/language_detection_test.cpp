#include "smoe/eval/language_detection.h"

#include <gtest/gtest.h>

#include <map>

#include "smoe/core/error.h"

namespace smoe {
namespace {

TEST(LanguageDetection, TellsLanguagesOfOneSentence) {
  const std::map<std::string, std::string> texts = {
      {"en", "The old library opens at nine and everyone in the village is welcome to read there."},
      {"de", "Die alte Bibliothek öffnet um neun Uhr, und alle im Dorf dürfen dort lesen."},
      {"ru", "Старая библиотека открывается в девять часов, и все жители могут там читать."},
      {"hi", "पुराना पुस्तकालय नौ बजे खुलता है और गाँव के सभी लोग वहाँ पढ़ सकते हैं।"},
      {"ko", "오래된 도서관은 아홉 시에 문을 열고 모두 그곳에서 책을 읽을 수 있습니다."},
      {"he", "הספרייה הישנה נפתחת בתשע וכולם בכפר מוזמנים לקרוא שם."},
      {"sw", "Maktaba ya zamani inafunguliwa saa tatu asubuhi na kila mtu kijijini anaweza kusoma hapo."}};
  for (const auto& [code, text] : texts) EXPECT_EQ(detect_language(text), code) << text;
}

TEST(LanguageDetection, CapitalsAreTheSameLanguage) {
  EXPECT_EQ(detect_language("PLEASE BRING THE OTHER BOOK WHEN YOU COME HOME TONIGHT."), "en");
}

TEST(LanguageDetection, TextWithoutLettersHasNone) {
  EXPECT_EQ(detect_language("12 + 30 = 42 !!"), std::nullopt);
  EXPECT_EQ(detect_language(""), std::nullopt);
}

TEST(LanguageDetection, InvalidUtf8IsAnError) { EXPECT_THROW(detect_language("abc \xff def"), DataError); }

TEST(Sentences, AbbreviationsAndNumbersEndNone) {
  EXPECT_EQ(count_sentences("Mr. Smith paid 3.50 dollars. He left."), 2);
  EXPECT_EQ(count_sentences("Stop! Why? Because."), 3);
}

TEST(Sentences, LineEndsAloneEndNone) {
  EXPECT_EQ(count_sentences("A title\n\nOne sentence\nover two lines. Another."), 2);
  EXPECT_EQ(count_sentences("We wait... Then we go."), 1);
  EXPECT_EQ(count_sentences("One.\n- Two.\n- Three."), 3);
  EXPECT_EQ(count_sentences(""), 0);
  EXPECT_EQ(count_sentences(" \n"), 0);
}

TEST(CapitalWords, PunctuationAndContractionsSeparateThem) {
  EXPECT_EQ(count_capital_words("NASA, (ESA) and I went"), 3);
  EXPECT_EQ(count_capital_words("DON'T"), 2);
  EXPECT_EQ(count_capital_words("IT'S WELL-DONE"), 3);
  EXPECT_EQ(count_capital_words("R&D CANNOT"), 4);
  EXPECT_EQ(count_capital_words("I'm fine, Thanks 123"), 1);
  EXPECT_EQ(count_capital_words(""), 0);
}

}  // namespace
}  // namespace smoe
